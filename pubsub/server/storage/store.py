"""The server's store: one SQLite file, one writing connection, one transaction a loop (docs/architecture.md, *Stores*).

Batches are rows as they were put, keyed by log number << 40 | offset, so that a put is one insert at the end of a
B-tree and a read is one range. Everything else that has to outlive the process is small: topics with their history,
logs, the last counter of each publisher, the subscribers' subscriptions.

`synchronous=FULL` with a write-ahead log: a commit that returned is on the disk. The log is copied back into the file
by `checkpoint.Checkpointer`, on a thread of its own.
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
from pubsub.server.storage.applying import Applying
from pubsub.server.storage.barred import InTheWay
from pubsub.server.storage.loading import Loading
from pubsub.server.storage.schema import ADDED, APPLICATION_ID, DESCRIBING, FILE, FORMAT, SCHEMA
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
        directory: made if it is not there.
        bytes_max: size of the file beyond which it counts as full; 0: the disk's limit.
        vfs: SQLite's file system, for one that is not the machine's: it has no shared memory, and the directory is
            neither made nor locked.

    Raises:
        StoreInUse: another process has it open.
        StoreNewer, StoreDamaged, StorageError, ConfigurationError: it cannot be used.
    """

    def __init__(self, directory: Path, *, bytes_max: int = 0, vfs: str | None = None) -> None:
        self.directory = directory
        self.path = directory / FILE
        self._lock_file = lock_directory(directory) if vfs is None else None
        try:
            alone = () if vfs is None else (("locking_mode", "exclusive"),)
            log = log_of(self.path)
            if vfs is None and begins_damaged(log):
                raise StoreDamaged(str(self.path), f"damaged: {log.name} cannot be read, see: pubsub server check")
            self.db = open_database(self.path, (*alone, *_PRAGMAS), vfs=vfs)
            if vfs is None:
                self._check_files(log)
            self._open_format()
            if bytes_max:
                self.db.pragma("max_page_count", max(64, bytes_max // self.db.pragma("page_size")))
            super().__init__(self.path, self.db)
        except BaseException as error:
            self._unlock()
            if isinstance(error, apsw.Error):
                raise translate(error, self.path) from None
            raise
        self._applying = Applying(self.db, self.reader)

    def _open_format(self) -> None:
        """Read the format, or make a new store."""
        found = self.db.pragma("user_version")
        if found > FORMAT:
            raise StoreNewer(str(self.path), found, FORMAT)
        if 0 < found <= FORMAT:
            if self.db.pragma("application_id") != APPLICATION_ID:
                raise StoreDamaged(str(self.path), "not a server's store")
            for finding in find_damage(self.db, DESCRIBING):
                raise StoreDamaged(str(self.path), f"damaged: {finding}, see: pubsub server check")
            self._add_tables()
            self._migrate(found)
            return
        if self._row("select 1 from sqlite_schema"):
            raise StoreDamaged(str(self.path), "a database, but not a server's store")
        try:
            with self.db:
                for statement in (*SCHEMA, *ADDED):
                    self.db.execute(statement)
                self.db.execute("insert into meta values ('store', ?)", (secrets.token_hex(8),))
                self.db.execute(f"pragma application_id = {APPLICATION_ID}")
                self.db.execute(f"pragma user_version = {FORMAT}")
        except apsw.FullError:
            raise StoreFull(str(self.path), "no space for a new store") from None

    def _add_tables(self) -> None:
        if self._row("select count(*) from sqlite_schema where name in ('rival', 'aside')")[0] < len(ADDED):
            with self.db:
                for statement in ADDED:
                    self.db.execute(statement)

    def _migrate(self, found: int) -> None:
        """Bring a store of an earlier format to this one: format 2 reads all that format 1 wrote, as it stands."""
        if found < FORMAT:
            with self.db:
                self.db.execute(f"pragma user_version = {FORMAT}")

    def _check_files(self, log: Path) -> None:
        """See that SQLite takes all of the write-ahead log, and that nothing was cut off the file that it has not.

        What is found damaged stays as it is: the log is copied back later.

        Raises:
            StoreDamaged: it leaves out more than a commit that was not finished, or pages are missing.
        """
        # A connection that has not read yet does not know how long the log is.
        pages, page_bytes = self._row("select page_count, page_size from pragma_page_count, pragma_page_size")
        sound = max(0, self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0])
        try:
            if (lost := commits_behind(log, sound)) > 1:
                reason = f"{lost:,} commits at the end of {log.name} cannot be read, see: pubsub server check"
                raise StoreDamaged(str(self.path), f"damaged: {reason}")
            size = self.path.stat().st_size
            logged = (frame.page for frame in islice(frames(log, checked=False), sound))
            if size < pages * page_bytes and missing_pages(size, pages, page_bytes, logged) > 0:
                raise StoreDamaged(str(self.path), f"damaged: {size} bytes are left of {pages * page_bytes}")
        except StoreDamaged:
            self.keep_log()
            raise

    # Writing

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """One transaction; what SQLite says goes wrong in it comes out as our errors, and nothing of it is left."""
        try:
            with self._transaction():
                yield
        except apsw.Error as error:
            raise translate(error, self.path) from None

    def write(self, changes: Sequence[c.Change], act: Callable[[], None] = lambda: None) -> None:
        """The same of changes: deletions that a damaged page is in the way of are left out.

        SQLite refuses the COMMIT of a transaction that met a damaged page, so it is carried out anew without them.

        Args:
            act: called behind the changes, within the transaction.

        Raises:
            StoreDamaged: something else cannot be written; `failed` says which change.
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
        """Open the loop's transaction."""
        self.db.execute("begin immediate")

    def commit(self) -> None:
        """Make the loop's transaction durable; it is on the disk when this returns."""
        self.db.execute("commit")
        self._applying.committed()

    def roll_back(self) -> None:
        """Forget the loop's transaction."""
        for key in self._applying.fresh:
            self.reader.drop(key)
        self._applying.fresh.clear()
        # What is not set aside on the disk is to be found again: its row must not be deleted as a sound one.
        self.reader.damaged -= self._applying.damaged
        self._applying.damaged.clear()
        if self.db.in_transaction:
            self.db.execute("rollback")

    def apply(self, changes: Sequence[c.Change]) -> None:
        """Carry out changes within the open transaction, in order.

        Raises:
            apsw.CorruptError, apsw.ConstraintError: a damaged page was met; `failed` says by which change.
        """
        self._applying.apply(changes)

    def failed(self) -> c.Change | None:
        """The change that met a damaged page, once."""
        failed, self._applying.failed = self._applying.failed, None
        return failed

    # Sizes

    def free_bytes(self) -> int:
        """Bytes within the file that hold nothing and are used before it grows."""
        return int(self.db.pragma("freelist_count")) * int(self.db.pragma("page_size"))

    def room_bytes(self) -> int:
        """Bytes that can still be written before the limit set for this store is reached."""
        pages = int(self.db.pragma("max_page_count")) - int(self.db.pragma("page_count"))
        return self.free_bytes() + pages * int(self.db.pragma("page_size"))

    def sizes(self) -> dict[str, int]:
        """Bytes on the disk: of the file, and of its write-ahead log."""
        wal = log_of(self.path)
        return {
            "store": int(self.db.pragma("page_count")) * int(self.db.pragma("page_size")),
            "log": wal.stat().st_size if wal.exists() else 0,
        }

    def keep_log(self) -> None:
        """Do not copy the write-ahead log back when the file is closed: the disk failed, and only the log is sure."""
        self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        """Close the file and let another process have it."""
        self.db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
