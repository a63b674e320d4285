"""The server's store: one SQLite file, one writing connection, one transaction a loop (docs/explanation/stores.md, S1).

Batches are stored as they were put, with the key log number << 40 | offset. A put is therefore one insert at the end of
a B-tree, and a read is one range. The other durable data is small: topics with their history, logs, the last counter of
each publisher, and subscriptions.

With `synchronous=FULL` and a write-ahead log, a commit is on the disk when it returns. `checkpoint.Checkpointer` copies
the log back into the file, on a separate thread.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import find_damage, forget_pages, lock_directory, open_database, translate
from pubsub.base.wal import begins_damaged, commits_behind, frames, log_of, missing_pages
from pubsub.errors import StoreDamaged, StoreFull, StoreNewer
from pubsub.server.storage import formats
from pubsub.server.storage.applying import Applying
from pubsub.server.storage.barred import InTheWay
from pubsub.server.storage.loading import Loading
from pubsub.server.storage.schema import APPLICATION_ID, DESCRIBING, FILE, FORMAT, SCHEMA
from pubsub.server.topic import changes as c

_PRAGMAS: Final = (
    ("journal_mode", "wal"),
    ("synchronous", 2),
    ("wal_autocheckpoint", 0),
    ("temp_store", 2),
    ("cache_size", -65536),
)


class Store(Loading):
    """A server's directory, open for one process.

    Args:
        directory: made if it does not exist.
        bytes_max: size of the file beyond which it counts as full; 0 for the limit of the disk.
        vfs: another file system of SQLite than the machine's. It has no shared memory, and the directory is neither
            made nor locked.
        read_only: a store that exists keeps its format and its contents; every write is refused.

    Raises:
        StoreInUse: another process has it open.
        StoreNewer, StoreDamaged, StorageError, ConfigurationError: it cannot be used.
    """

    def __init__(self, directory: Path, *, bytes_max: int = 0, vfs: str | None = None, read_only: bool = False) -> None:
        self.directory = directory
        self.path = directory / FILE
        self._lock_file = lock_directory(directory) if vfs is None else None
        try:
            alone = () if vfs is None else (("locking_mode", "exclusive"),)
            log = log_of(self.path)
            if vfs is None and begins_damaged(log):
                raise StoreDamaged(str(self.path), f"damaged: {log.name} cannot be read; run pubsub server check")
            self.db = open_database(self.path, (*alone, *_PRAGMAS), vfs=vfs)
            if vfs is None:
                self._check_files(log)
            self._open_format(read_only=read_only)
            if bytes_max:
                self.db.pragma("max_page_count", max(64, bytes_max // self.db.pragma("page_size")))
            super().__init__(self.path, self.db)
        except BaseException as error:
            self._unlock()
            if isinstance(error, apsw.Error):
                raise translate(error, self.path) from None
            raise
        self._applying = Applying(self.db, self.reader)

    def _open_format(self, *, read_only: bool) -> None:
        """Check the format, and migrate an earlier one; or make a new store."""
        found = self.db.pragma("user_version")
        if found > FORMAT:
            raise StoreNewer(str(self.path), found, FORMAT)
        if 0 < found <= FORMAT:
            if self.db.pragma("application_id") != APPLICATION_ID:
                raise StoreDamaged(str(self.path), "not a server's store")
            for finding in find_damage(self.db, (*DESCRIBING, *formats.OLD_NAMES)):
                raise StoreDamaged(str(self.path), f"damaged: {finding}; run pubsub server check")
            if read_only:
                formats.show(self.db, found)
                self.db.pragma("query_only", 1)
            else:
                formats.migrate(self.db, found)
            return
        if self._row("select 1 from sqlite_schema"):
            raise StoreDamaged(str(self.path), "a database, but not a server's store")
        try:
            with self.db:
                for statement in SCHEMA:
                    self.db.execute(statement)
                self.db.execute("insert into meta values ('store', ?)", (secrets.token_hex(8),))
                self.db.execute(f"pragma application_id = {APPLICATION_ID}")
                self.db.execute(f"pragma user_version = {FORMAT}")
        except apsw.FullError:
            raise StoreFull(str(self.path), "no space for a new store") from None

    def _check_files(self, log: Path) -> None:
        """Check that SQLite accepts all of the write-ahead log, and that the file misses no pages.

        A damaged store stays unchanged: the log is not copied back then.

        Raises:
            StoreDamaged: SQLite would ignore more than one unfinished commit, or pages are missing.
        """
        # A connection that has not read yet does not know how long the log is.
        pages, page_bytes = self._row("select page_count, page_size from pragma_page_count, pragma_page_size")
        checkpointed = max(0, self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0])
        try:
            if (lost := commits_behind(log, checkpointed)) > 1:
                reason = f"{lost:,} commits at the end of {log.name} cannot be read; run pubsub server check"
                raise StoreDamaged(str(self.path), f"damaged: {reason}")
            size = self.path.stat().st_size
            logged = (frame.page for frame in islice(frames(log, checked=False), checkpointed))
            if size < pages * page_bytes and missing_pages(size, pages, page_bytes, logged) > 0:
                raise StoreDamaged(str(self.path), f"damaged: {size} bytes are left of {pages * page_bytes}")
        except StoreDamaged:
            self.keep_log()
            raise

    # Writing

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Run one transaction. SQLite's errors become StorageErrors, and a failed transaction leaves nothing."""
        try:
            with self._transaction():
                yield
        except apsw.Error as error:
            raise translate(error, self.path) from None

    def write(self, changes: Sequence[c.Change], act: Callable[[], None] = lambda: None) -> None:
        """Apply changes in one transaction, and leave out deletions that a damaged page prevents.

        SQLite refuses the COMMIT of a transaction that met a damaged page. The transaction is then tried again without
        them.

        Args:
            changes: in order.
            act: called after the changes, within the transaction.

        Raises:
            StoreDamaged: another change cannot be written; `failed` returns it.
        """
        self._applying.prepare(changes)
        failures = 0
        while True:
            try:
                with self._transaction():
                    self.apply(changes)
                    act()
                return
            except InTheWay as met:
                failures += 1
                self._applying.avoid(met, failures)
            except apsw.Error as error:
                raise translate(error, self.path) from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self.begin()
            yield
            self.commit()
        except BaseException as error:
            self.roll_back()
            if isinstance(error, apsw.CorruptError):
                forget_pages(self.db)
            raise

    def begin(self) -> None:
        self.db.execute("begin immediate")

    def commit(self) -> None:
        """Commit the loop's transaction. It is on the disk when this returns."""
        self.db.execute("commit")
        self._applying.committed()

    def roll_back(self) -> None:
        """Roll back the loop's transaction, if one is open, and drop its batches from the cache."""
        for key in self._applying.fresh:
            self.reader.drop(key)
        self._applying.fresh.clear()
        # Damage that is not recorded on the disk must be found again: its row must not be deleted as an intact one.
        self.reader.damaged -= self._applying.damaged
        self._applying.damaged.clear()
        if self.db.in_transaction:
            self.db.execute("rollback")

    def apply(self, changes: Sequence[c.Change]) -> None:
        """Apply changes within the open transaction, in order.

        Raises:
            apsw.CorruptError, apsw.ConstraintError: a damaged page was met; `failed` returns the change.
        """
        self._applying.apply(changes)

    def failed(self) -> c.Change | None:
        """Return the change that met a damaged page, once."""
        failed, self._applying.failed = self._applying.failed, None
        return failed

    # Sizes

    def free_bytes(self) -> int:
        """Bytes within the file that are free, and are used before the file grows."""
        return int(self.db.pragma("freelist_count")) * int(self.db.pragma("page_size"))

    def room_bytes(self) -> int:
        """Bytes that can be written before the configured limit of this store is reached."""
        pages = int(self.db.pragma("max_page_count")) - int(self.db.pragma("page_count"))
        return self.free_bytes() + pages * int(self.db.pragma("page_size"))

    def sizes(self) -> dict[str, int]:
        """Bytes on the disk, of the file and of its write-ahead log."""
        wal = log_of(self.path)
        return {
            "store": int(self.db.pragma("page_count")) * int(self.db.pragma("page_size")),
            "log": wal.stat().st_size if wal.exists() else 0,
        }

    def keep_log(self) -> None:
        """Keep the write-ahead log when the file is closed. After a disk failure only the log is reliable."""
        self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        """Close the file and unlock the directory."""
        self.db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
