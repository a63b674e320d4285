"""Keep the client's durable state: one SQLite file, one process at a time (docs/explanation/stores.md, *SQLite*).

The file uses WAL with `synchronous=NORMAL`. A commit survives the end of the process; after a power cut the file has an
earlier, intact state. A commit that must survive a power cut too is made under FULL, which covers every commit before
it. The lock of `locking_mode=EXCLUSIVE` keeps out other processes. Tables named `pubsub_…` are the client's. The rest
of the file belongs to the application, and its tables commit together with ours in `transaction` and `process`.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from pubsub.base import forks
from pubsub.base.database import CAREFUL, begin_file
from pubsub.base.wal import begins_damaged, log_of
from pubsub.client.core import changes as c
from pubsub.client.core.numbers import and_then
from pubsub.client.storage.applying import APPLY
from pubsub.client.storage.disk_errors import open_here, row_errors, storage_errors, sync_folder
from pubsub.client.storage.file_reading import FileReading
from pubsub.client.storage.formats import ITS_OWN, make_later_tables, note
from pubsub.client.storage.inherited import Inherited
from pubsub.client.storage.interface import ClientStore
from pubsub.client.storage.soundness import blank_failed, check_log, check_pages
from pubsub.client.storage.space import Space
from pubsub.client.storage.tables import FORMAT, FORMAT_WAITING, MIGRATIONS, TABLES
from pubsub.errors import AfterFork, StorageError, StoreFull, StoreNewer

PAGE_BYTES: Final = 8 * 1024
CHECKPOINT_PAGES: Final = 4_000
"""Pages of the WAL above which they move into the database; earlier on a disk that is nearly full."""

LOOK_PAGES: Final = 64
"""Pages of the WAL between two checks of the free space."""

_log: Final = logging.getLogger("pubsub.client")


class Store(FileReading):
    """The open state of one client, as a `ClientStore`.

    Args:
        path: the file; a missing directory is made.
        boot: identifies this start of the operating system; "" if unknown.
        vfs: SQLite's file system, if it is not the machine's; no other file is made or synced there.
        opened: gets the store before its file is open, for a caller that an exception interrupts before it has the
            store.

    Attributes:
        failed: True if the disk refused the last commit or was full; later work needs a successful commit first.
        has_room: True if the last commit failed for lack of space and may succeed now.
        folder: its directory; None if the file system is not the machine's.
        rolled_back: True if the last failed `end` has certainly committed nothing.

    Raises:
        StorageError: the file or its directory cannot be used; the cause is in StoreInUse, StoreNewer, StoreDamaged,
            StoreFull.
    """

    def __init__(
        self,
        path: Path,
        boot: str = "",
        *,
        power_safe: bool = False,
        vfs: str | None = None,
        opened: list[ClientStore] | None = None,
    ) -> None:
        self.path = str(path)
        self.on_lost: Callable[[], None] = lambda: None  # Memory and file never differ.
        self.failed = self.has_room = self.rolled_back = False
        self.power_safe = power_safe
        self._boot = boot
        self.commits = self._wal_pages = 0
        self._checkpoints = True
        self._look_at = 0
        self._spent = False
        """True if the reserve is used up: a put that would make the database grow is refused."""
        self.folder: Path | None = path.parent if vfs is None else None
        self._space = Space(path, CHECKPOINT_PAGES * PAGE_BYTES) if vfs is None else None
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(str(path.parent), f"cannot be made: {error.strerror}") from None
        # Check the WAL's own header before SQLite overwrites it.
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
            if self.folder is not None:
                with suppress(OSError):
                    self._pid.write_text(f"{os.getpid()}\n", encoding="ascii")
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        """Close the file if it is open. A second call does nothing."""
        if hasattr(self, "db"):
            self.db.close()
        if self._ours:  # Otherwise it is open elsewhere in this process, so this opening failed.
            open_here.discard(self._place)
            with suppress(OSError):
                self._pid.unlink()
            self._ours = False

    def _prepare(self) -> None:
        # Set each pragma alone, and read it back: a list of pragmas stops silently at the first that returns a row.
        self._set("page_size", PAGE_BYTES, check=False)
        self._set("locking_mode", "exclusive")
        self._set("journal_mode", "wal")
        self._set("synchronous", 2)
        # Otherwise SQLite checkpoints within the commit, and a failed checkpoint looks like a failed commit.
        self._set("wal_autocheckpoint", 0)
        self.db.set_wal_hook(self._committed)
        self._level = 2
        found = self.db.pragma("user_version")
        if found > FORMAT_WAITING:
            raise StoreNewer(self.path, found, FORMAT_WAITING)
        check_pages(self.db, self.path, found)
        if found and self.folder is not None and self._boot and self.state("boot") == self._boot:
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
        """Mark the file as open, and make missing tables (format 0)."""
        with self.transaction(fsync=True):
            if not found:
                # Within the transaction: if it fails, no tables exist and the next start retries.
                sync_folder(self.folder)
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
            make_later_tables(self.db, found)
            # Assume a power cut if the last owner neither closed the file nor ran in this boot.
            if not self.state("clean") and (not self._boot or self.state("boot") != self._boot):
                self._put_state("cuts", self.state("cuts") + 1)
            self._put_state("clean", 0)
            self._put_state("boot", self._boot)

    def _set(self, pragma: str, value: str | int, *, check: bool = True) -> None:
        self.db.pragma(pragma, value)
        found = self.db.pragma(pragma)
        if check and found != value:
            raise StorageError(self.path, f"SQLite keeps {pragma} = {found}, but {value} is needed")

    def _synchronous(self, level: int) -> None:
        if self._level != level:
            self.db.pragma("synchronous", level)
            self._level = level

    def _put_state(self, key: str, value: str | int) -> None:
        self.db.execute("update pubsub_state set value = ? where key = ?", (value, key))

    # Writing

    def transaction(self, *, fsync: bool) -> _Commit:
        """Make one commit around a `with` block; if the block raises, nothing of it happens.

        Raises:
            StorageError: the commit failed; nothing of it happened.
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
        """Check the free space and the length of the WAL after a commit."""
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
        """Return True if a row of `size` bytes fits into free pages of the database."""
        return int(self.db.pragma("freelist_count")) * PAGE_BYTES >= 2 * size + LOOK_PAGES * PAGE_BYTES // 4

    def _checkpoint(self) -> bool:
        """Move the WAL into the database, so that the next commit starts it again; return True if all of it moved.

        If the database cannot grow, it gets the space of the reserve.
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
                # A failed fsync leaves unknown pages unwritten. The WAL still has all of them, for the next start.
                self._checkpoints = False
                _log.error("the write-ahead log of %s is kept until the next start: %s", self.path, error)
            else:
                self._wal_pages = self._look_at = 0
                return bool(0 < pages == moved)
        return False

    def _made_room(self, error: BaseException) -> bool:
        """Return True if a commit that failed for lack of space is worth a second try, because the WAL could be moved.

        Otherwise only a successful commit would move the WAL, and on a full disk none succeeds.
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
        """Roll back after a failure, and raise an error of SQLite as one of ours."""
        with storage_errors(self.path):
            self.rollback()
            # Frames of the rolled-back commit may be in the WAL, and would come back after a crash.
            if isinstance(error, apsw.FullError | apsw.IOError):
                self.failed = True
                if self.folder is not None:
                    blank_failed(self.db, self.path)
            self.has_room = self._made_room(error)
            if isinstance(error, apsw.Error):
                raise error

    def begin(self, *, fsync: bool) -> None:
        """Begin a transaction, with an fsync at its commit or without."""
        self._synchronous(2 if fsync or self.power_safe else 1)
        self.db.execute("begin immediate")

    def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        if self.db.in_transaction:
            self.db.execute("rollback")

    def commit(self, changes: Iterable[c.Change], *, fsync: bool = False) -> bool:
        """Apply changes in one transaction.

        Args:
            changes: the changes in order.
            fsync: they must survive a power cut.

        Returns:
            True if it was fsynced, and with it every earlier commit.

        Raises:
            StorageError: nothing of it happened.
        """
        changes = tuple(changes)
        fsync = fsync or self.power_safe or not c.FSYNC.isdisjoint(map(type, changes))
        # The same as `transaction`, without its `with` block, which would double the cost of a small put.
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
        if len(changes) == 1 and type(changes[0]) is c.RowAdded:  # A single statement is its own transaction.
            self._synchronous(2 if fsync else 1)
            self.apply(changes)
        else:
            self.begin(fsync=fsync)
            self.apply(changes)
            self.db.execute("commit")

    def apply(self, changes: Iterable[c.Change]) -> None:
        """Apply changes within an open transaction."""
        run, run_many = self.db.execute, self.db.executemany
        for change in changes:
            kind = type(change)
            if self._spent and isinstance(change, c.RowAdded) and not self._has_within(len(change.body)):
                raise apsw.FullError("the remaining space is reserved for changes that free space")
            for statement, parameters in APPLY[kind](change):
                if isinstance(parameters, list):
                    run_many(statement, parameters)
                else:
                    run(statement, parameters)
            if kind in ITS_OWN:
                note(self.db, change)

    def sync(self) -> None:
        """Fsync all commits so far, by a small commit under FULL.

        Raises:
            StorageError: the fsync failed.
        """
        with self.transaction(fsync=True):
            self.db.execute("update pubsub_state set value = value + 1 where key = 'sync'")

    def save_milliseconds(self, milliseconds: int) -> None:
        """Make the number allocator's milliseconds durable.

        Raises:
            StorageError: the commit failed.
        """
        with self.transaction(fsync=True):
            known = and_then(self.known_milliseconds(), milliseconds)
            self._put_state("milliseconds", milliseconds)
            self.db.execute("insert or replace into pubsub_state values ('known', ?)", (",".join(map(str, known)),))

    def forked(self, error: AfterFork) -> None:
        """Abandon the connection in a child process; later uses raise `error`."""
        forks.keep(self.db)
        self.db = Inherited(error)  # type: ignore[assignment]
        open_here.discard(self._place)

    def close(self, *, clean: bool = True) -> None:
        """Release the file. `clean`: first fsync everything and set the mark of a clean close.

        Raises:
            StorageError: that failed; the file is released all the same, without the mark.
        """
        try:
            if clean:
                with suppress(apsw.ConnectionClosedError):  # An earlier call may have closed the connection already.
                    self.rollback()
                    self.sync()
                    with self.transaction(fsync=True):
                        self._put_state("clean", 1)
        finally:
            if self._space is not None and self._ours:
                self._space.release()  # SQLite moves the WAL at the close, and may need the space.
            self._release()


class _Commit:
    """The `with` block of `Store.transaction`; not a generator, since an interrupted one would resume later."""

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
