"""The client's durable state: one SQLite file, one process at a time (docs/architecture.md, *Stores*).

WAL with `synchronous=NORMAL`: a commit survives the process, and after a power cut what is found is an earlier, sound
state. A commit that must survive a power cut too is made under FULL, which covers every commit before it. The lock of
`locking_mode=EXCLUSIVE` keeps a second process out. Everything here named `pubsub_…` is the client's; the rest of the
file belongs to the application, whose tables commit together with ours in `transaction` and `process`.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub.base import forks
from pubsub.base.database import CAREFUL, begin_file
from pubsub.base.wal import begins_damaged, log_of
from pubsub.client.core import changes as c
from pubsub.client.core.numbers import and_then
from pubsub.client.storage.applying import APPLY
from pubsub.client.storage.disk_errors import open_here, row_errors, storage_errors
from pubsub.client.storage.reading import Reading
from pubsub.client.storage.soundness import blank_failed, check_log, check_pages
from pubsub.client.storage.space import Space
from pubsub.client.storage.tables import CALLS, FORMAT, LETTERS_BESIDE, MIGRATIONS, STARTS, TABLES, UNTOLD
from pubsub.errors import AfterFork, StorageError, StoreFull, StoreNewer

PAGE_BYTES: Final = 8 * 1024
CHECKPOINT_PAGES: Final = 4_000
"""Pages of the WAL after which they are moved into the database; on a disk that is nearly full it is earlier."""

LOOK_PAGES: Final = 64
"""Pages of the WAL after which it is looked anew how full the disk is."""

_log: Final = logging.getLogger("pubsub.client")


class Store(Reading):
    """The state of one client, opened.

    Args:
        path: the file; its directory is made where it is missing.
        boot: identifies this start of the operating system; "" where that cannot be known.
        power_safe: fsync every commit.
        vfs: SQLite's file system, for one that is not the machine's; no other file is made or synced there.
        opened: gets the store before its file is open, for a caller that an exception may strike before it has it.

    Attributes:
        failed: the disk refused the last commit, or was full; nothing may be built on what is here before one succeeds.
        has_room: what failed last, for want of space, may succeed now.
        rolled_back: the last `end` that failed has committed nothing, for sure.
        commits: how many there were since it was opened.

    Raises:
        StorageError: the file or its directory cannot be used; StoreInUse, StoreNewer, StoreDamaged, StoreFull say why.
    """

    def __init__(
        self,
        path: Path,
        boot: str = "",
        *,
        power_safe: bool = False,
        vfs: str | None = None,
        opened: list[Store] | None = None,
    ) -> None:
        self.path = str(path)
        self.failed = self.has_room = self.rolled_back = False
        self._power_safe = power_safe
        self._boot = boot
        self.commits = self._wal_pages = 0
        self._checkpoints = True
        self._look_at = 0
        self._spent = False
        """Whether the reserve is gone: nothing is put that the database would have to grow for."""
        self._folder = path.parent if vfs is None else None
        self._space = Space(path, CHECKPOINT_PAGES * PAGE_BYTES) if vfs is None else None
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(str(path.parent), f"cannot be made: {error.strerror}") from None
        # Its own head is looked at before SQLite writes over it.
        if vfs is None:
            begin_file(path, PAGE_BYTES)
        self._headless = vfs is None and begins_damaged(log_of(path))
        self._place, self._pid, self._ours = os.path.realpath(self.path), path.with_suffix(".pid"), False
        if opened is not None:
            opened.append(self)
        try:
            with storage_errors(self.path), row_errors(self.path):
                self.db = apsw.Connection(self.path, vfs=vfs)
                self.db.execute(CAREFUL)
                self._prepare()
            self._ours = True
            if vfs is None:
                open_here.add(self._place)
            if self._folder is not None:
                with suppress(OSError):
                    self._pid.write_text(f"{os.getpid()}\n", encoding="ascii")
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        """Close the file, as far as it is open. More than once is fine."""
        if hasattr(self, "db"):
            self.db.close()
        if self._ours:  # Or it is open elsewhere in this process, which is why this one could not be opened.
            open_here.discard(self._place)
            with suppress(OSError):
                self._pid.unlink()
            self._ours = False

    def _prepare(self) -> None:
        # Each pragma alone, and read back: a list of pragmas stops silently at the first that returns a row.
        self._set("page_size", PAGE_BYTES, check=False)
        self._set("locking_mode", "exclusive")
        self._set("journal_mode", "wal")
        self._set("synchronous", 2)
        # SQLite would move the WAL within the commit, which then reports what failed in that although it has happened.
        self._set("wal_autocheckpoint", 0)
        self.db.set_wal_hook(self._committed)
        self._level = 2
        found = self.db.pragma("user_version")
        if found > FORMAT:
            raise StoreNewer(self.path, found, FORMAT)
        check_pages(self.db, self.path, found)
        if found and self._folder is not None and self._boot and self.state("boot") == self._boot:
            check_log(self.db, self.path, headless=self._headless)
        try:
            self._begin_life(found)
        except StoreFull:
            if not self.has_room:
                raise
            self._begin_life(found)
        if self._space is not None:
            self._space.make()

    def _begin_life(self, found: int) -> None:
        """Note that the file is open, and make the tables where they are missing (format 0)."""
        with self.transaction(fsync=True):
            if not found:
                self._sync_folder()  # Within: where it fails there are no tables, and the next start tries it again.
                for table in TABLES:
                    self.db.execute(table)
                self.db.execute(f"pragma user_version = {FORMAT}")
                fresh = {"store": secrets.token_hex(8), "milliseconds": 0, "cuts": 0, "boot": "", "clean": 1, "sync": 0}
                self.db.executemany("insert into pubsub_state values (?, ?)", list(fresh.items()))
            elif found < FORMAT:
                for version in range(found + 1, FORMAT + 1):
                    for statement in MIGRATIONS[version]:
                        self.db.execute(statement)
                self.db.execute(f"pragma user_version = {FORMAT}")
            for table in (STARTS, UNTOLD, LETTERS_BESIDE, *CALLS):
                self.db.execute(table)
            # The host lost power, as far as we can know, where the last owner neither closed nor ran in this boot.
            if not self.state("clean") and (not self._boot or self.state("boot") != self._boot):
                self._put_state("cuts", self.state("cuts") + 1)
            self._put_state("clean", 0)
            self._put_state("boot", self._boot)

    def _sync_folder(self) -> None:
        """Bring to the disk that the file is there, by this name."""
        if self._folder is None:
            return
        try:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageError(str(self._folder), f"cannot be brought to the disk: {error.strerror}") from None

    def _set(self, pragma: str, value: str | int, *, check: bool = True) -> None:
        self.db.pragma(pragma, value)
        found = self.db.pragma(pragma)
        if check and found != value:
            raise StorageError(self.path, f"SQLite keeps {pragma} = {found}, where {value} is needed")

    def _synchronous(self, level: int) -> None:
        if self._level != level:
            self.db.pragma("synchronous", level)
            self._level = level

    def _put_state(self, key: str, value: str | int) -> None:
        self.db.execute("update pubsub_state set value = ? where key = ?", (value, key))

    # Writing

    def transaction(self, *, fsync: bool) -> _Commit:
        """One commit around a `with` block, or none of it where the block raises.

        Raises:
            StorageError: it could not be committed; nothing of it happened.
        """
        return _Commit(self, fsync=fsync)

    def end(self) -> None:
        """Commit the open transaction.

        Raises:
            StorageError: nothing of it happened.
        """
        try:
            self.db.execute("commit")
        except BaseException as error:
            self.rolled_back = self.db.in_transaction
            self.undo(error)
            raise
        self._succeeded()

    def _committed(self, db: apsw.Connection, name: str, pages: int) -> int:
        self.commits += 1
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _succeeded(self) -> None:
        """A commit succeeded."""
        self.failed = False
        if (self._wal_pages < self._look_at and not self._spent) or not self._checkpoints:
            return
        longest = CHECKPOINT_PAGES
        if self._space is not None:
            longest = min(longest, self._space.log_bytes_max() // PAGE_BYTES)
            self._spent = not self._space.make() and self._spent
        if self._wal_pages >= longest:
            self._checkpoint()
        self._look_at = self._wal_pages + min(LOOK_PAGES, CHECKPOINT_PAGES)

    def _has_within(self, size: int) -> bool:
        """Whether a row with so many bytes fits into what is unused within the database."""
        return int(self.db.pragma("freelist_count")) * PAGE_BYTES >= 2 * size + LOOK_PAGES * PAGE_BYTES // 4

    def _checkpoint(self) -> bool:
        """Move the WAL into the database, so that the next commit writes at its beginning; whether all of it was.

        Where the database cannot grow, the reserve is what it grows by.
        """
        while self._checkpoints:
            try:
                pages, moved = self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.FullError:
                if self._space is None or not self._space.release():
                    return False  # Everything stays in the WAL, and a later commit tries again.
                self._spent = True
            except apsw.BusyError:
                return False
            except apsw.Error as error:
                # Nobody knows which pages a failed fsync left behind; the WAL has all of them, for the next start.
                self._checkpoints = False
                _log.error("the write-ahead log of %s is kept until the next start: %s", self.path, error)
            else:
                self._wal_pages = self._look_at = 0
                return bool(0 < pages == moved)
        return False

    def _made_room(self, error: BaseException) -> bool:
        """Whether what failed for want of space is worth another try: the WAL was moved, and will be written over.

        Only a commit that succeeds would move it otherwise, and on a full disk none does.
        """
        if not isinstance(error, apsw.FullError):
            return False
        self.rollback()
        self.failed = True
        moved = self._checkpoint()
        if self._space is not None and self._spent:
            self._spent = not self._space.make()
        return moved

    def undo(self, error: BaseException) -> None:
        """Roll back what could not be committed; raises what SQLite said as one of our errors."""
        with storage_errors(self.path):
            self.rollback()
            # What was rolled back may stand in the WAL, and would come back after a crash.
            if isinstance(error, apsw.FullError | apsw.IOError):
                self.failed = True
                if self._folder is not None:
                    blank_failed(self.db, self.path)
            self.has_room = self._made_room(error)
            if isinstance(error, apsw.Error):
                raise error

    def begin(self, *, fsync: bool) -> None:
        """Start a transaction whose commit is fsynced, or not."""
        self._synchronous(2 if fsync or self._power_safe else 1)
        self.db.execute("begin immediate")

    def rollback(self) -> None:
        """Undo the open transaction, where there is one."""
        if self.db.in_transaction:
            self.db.execute("rollback")

    def commit(self, changes: Iterable[c.Change], *, fsync: bool = False) -> bool:
        """Apply changes in one transaction.

        Args:
            changes: what changes, in order.
            fsync: they must survive a power cut.

        Returns:
            Whether it was fsynced, and with it every commit before.

        Raises:
            StorageError: nothing of it happened.
        """
        changes = tuple(changes)
        fsync = fsync or self._power_safe or not c.FSYNC.isdisjoint(map(type, changes))
        # As `transaction`, whose generators cost a small put as much as its row does.
        try:
            self._commit(changes, fsync)
        except apsw.FullError as error:
            if not self._made_room(error):
                self.undo(error)
                raise
            try:
                self._commit(changes, fsync)
            except BaseException as again:
                self.undo(again)
                raise
        except BaseException as error:
            self.undo(error)
            raise
        self._succeeded()
        return fsync

    def _commit(self, changes: tuple[c.Change, ...], fsync: bool) -> None:
        if len(changes) == 1 and type(changes[0]) is c.RowAdded:  # One statement is a transaction of its own.
            self._synchronous(2 if fsync else 1)
            self.apply(changes)
        else:
            self.begin(fsync=fsync)
            self.apply(changes)
            self.db.execute("commit")

    def apply(self, changes: Iterable[c.Change]) -> None:
        """Apply changes within an open transaction."""
        for change in changes:
            if self._spent and type(change) is c.RowAdded and not self._has_within(len(change.body)):
                raise apsw.FullError("what is left is for what frees space")
            APPLY[type(change)](self.db, change)

    def sync(self) -> None:
        """Fsync all that was committed. A small commit under FULL does it.

        Raises:
            StorageError: it could not be.
        """
        with self.transaction(fsync=True):
            self.db.execute("update pubsub_state set value = value + 1 where key = 'sync'")

    def save_milliseconds(self, milliseconds: int) -> None:
        """Make the number allocator's milliseconds durable.

        Raises:
            StorageError: it could not be.
        """
        with self.transaction(fsync=True):
            known = and_then(self.known_milliseconds(), milliseconds)
            self._put_state("milliseconds", milliseconds)
            self.db.execute("insert or replace into pubsub_state values ('known', ?)", (",".join(map(str, known)),))

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that opened it. The connection is left alone for good, and out of reach."""
        forks.keep(self.db)
        self.db = _Inherited(error)  # type: ignore[assignment]
        open_here.discard(self._place)

    def close(self, *, clean: bool = True) -> None:
        """Release the file; `clean`: everything is fsynced first, and then the mark that says so.

        Raises:
            StorageError: that failed; the file is released all the same, without the mark.
        """
        try:
            if clean:
                with suppress(apsw.ConnectionClosedError):  # An earlier call came so far, and no further.
                    self.rollback()
                    self.sync()
                    with self.transaction(fsync=True):
                        self._put_state("clean", 1)
        finally:
            if self._space is not None and self._ours:
                self._space.release()  # SQLite moves the WAL now.
            self._release()


class _Commit:
    """Made by `Store.transaction`. Not a generator: one kept from its end by an exception would go on at some time."""

    __slots__ = ("_fsync", "_store")

    def __init__(self, store: Store, *, fsync: bool) -> None:
        self._store, self._fsync = store, fsync

    def __enter__(self) -> None:
        try:
            self._store.begin(fsync=self._fsync)
        except BaseException as error:
            self._store.undo(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        if error is None:
            self._store.end()
        else:
            self._store.undo(error)


class _Inherited:
    """Stands in the place of a parent's connection."""

    def __init__(self, error: AfterFork) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error
