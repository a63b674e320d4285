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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub import forks
from pubsub.client import changes as c
from pubsub.client.space import Space
from pubsub.errors import THIS_PROCESS, AfterFork, StorageError, StoreDamaged, StoreFull, StoreInUse, StoreNewer
from pubsub.protocol import Position

FORMAT: Final = 1
PAGE_BYTES: Final = 8 * 1024
CHECKPOINT_PAGES: Final = 4_000
"""Pages of the WAL after which they are moved into the database; on a disk that is nearly full it is earlier."""

LOOK_PAGES: Final = 64
"""Pages of the WAL after which it is looked anew how full the disk is."""

_log: Final = logging.getLogger("pubsub.client")

_open_here: Final[set[str]] = set()
"""The files that this process has open."""

_TABLES: Final = (
    "create table pubsub_state (key text primary key, value) without rowid",
    "create table pubsub_outbox (counter integer primary key, topic text not null, previous integer not null,"
    " count integer not null, whole integer not null, checksum integer not null, body blob not null)",
    "create table pubsub_chains (topic text primary key, previous integer not null, cleared integer not null,"
    " log text not null) without rowid",
    "create table pubsub_subscriptions (topic text primary key, wanted integer not null, settled integer not null,"
    " number integer not null, log text not null, last_log text, last_offset integer,"
    " tried_log text, tried_offset integer, attempts integer not null default 0) without rowid",
    "create table pubsub_taken (topic text, publisher text, counter integer not null,"
    " primary key (topic, publisher)) without rowid",
    "create table pubsub_dead_letters (id integer primary key, topic text not null, first text not null,"
    " last text not null, publisher text not null, counter integer not null, stamp integer not null, body blob,"
    " error text not null, attempts integer not null, at real not null)",
)
_UNTOLD: Final = "create table if not exists pubsub_untold (id integer primary key, topic text not null)"
"""Dead letters of losses that the user is still to be told of. An older store gets it when it is opened."""


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors on this file into ours.

    Raises:
        StoreFull: no space is left.
        StoreDamaged: the file is not a database, or a damaged one.
        StoreInUse: another process has it.
        StorageError: anything else that the disk refuses.
    """
    try:
        yield
    except apsw.FullError:
        raise StoreFull(path, "no space left on the disk; free some and call again, nothing was sent") from None
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreDamaged(path, f"is damaged ({error}); restore it, or start with an empty directory") from None
    except (apsw.BusyError, apsw.LockedError):
        raise StoreInUse(path, _owner(path)) from None
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError) as error:
        raise StorageError(path, f"cannot be used: {error}") from None


def _owner(path: str) -> str:
    if os.path.realpath(path) in _open_here:
        return THIS_PROCESS
    with suppress(OSError):
        return f"process {Path(path).with_suffix('.pid').read_text().strip()}"
    return "its ID is not known"


class Store:
    """The state of one client, opened.

    Args:
        path: the file; its directory is made where it is missing.
        boot: identifies this start of the operating system; "" where that cannot be known.
        power_safe: fsync every commit.
        vfs: SQLite's file system, for one that is not the machine's; no other file is made or synced there.

    Attributes:
        failed: the disk refused the last commit, or was full; nothing may be built on what is here before one succeeds.
        has_room: what failed last, for want of space, may succeed now.
        rolled_back: the last `end` that failed has committed nothing, for sure.
        commits: how many there were since it was opened.

    Raises:
        StorageError: the file or its directory cannot be used; StoreInUse, StoreNewer, StoreDamaged, StoreFull say why.
    """

    def __init__(self, path: Path, boot: str = "", *, power_safe: bool = False, vfs: str | None = None) -> None:
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
        with storage_errors(self.path):
            self.db = apsw.Connection(self.path, vfs=vfs)
        try:
            with storage_errors(self.path):
                self._prepare()
        except BaseException:
            self.db.close()
            raise
        self._place = os.path.realpath(self.path)
        if vfs is None:
            _open_here.add(self._place)
        self._pid = path.with_suffix(".pid")
        if self._folder is not None:
            with suppress(OSError):
                self._pid.write_text(f"{os.getpid()}\n")

    def _prepare(self) -> None:
        # One pragma at a time and read back: a list of them stops silently at the first that returns a row.
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
                for table in _TABLES:
                    self.db.execute(table)
                self.db.execute(f"pragma user_version = {FORMAT}")
                fresh = {"store": secrets.token_hex(8), "milliseconds": 0, "cuts": 0, "boot": "", "clean": 1, "sync": 0}
                self.db.executemany("insert into pubsub_state values (?, ?)", list(fresh.items()))
            self.db.execute(_UNTOLD)
            # The host lost power, as far as we can know, where the last owner neither closed nor ran in this boot.
            if not self.state("clean") and (not self._boot or self.state("boot") != self._boot):
                self._put_state("cuts", self.state("cuts") + 1)
            self._put_state("clean", 0)
            self._put_state("boot", self._boot)
        if not found and self._folder is not None:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _set(self, pragma: str, value: str | int, *, check: bool = True) -> None:
        self.db.pragma(pragma, value)
        found = self.db.pragma(pragma)
        if check and found != value:
            raise StorageError(self.path, f"SQLite keeps {pragma} = {found}, where {value} is needed")

    def _synchronous(self, level: int) -> None:
        if self._level != level:
            self.db.pragma("synchronous", level)
            self._level = level

    def state(self, key: str) -> Any:
        """A value of the client's own: store, milliseconds, cuts, boot, clean."""
        return self.db.execute("select value from pubsub_state where key = ?", (key,)).get

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
                # What a failed sync leaves in the kernel is not known; the WAL holds it all, for the next start.
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
            # Where the disk failed in the middle, what was rolled back may stand in the WAL, and would come back
            # after a crash, until the next commit has overwritten it.
            self.failed = self.failed or isinstance(error, apsw.FullError | apsw.IOError)
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
        fsync = fsync or self._power_safe or any(isinstance(change, c.FSYNC) for change in changes)
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
            _APPLY[type(change)](self.db, change)

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
            self._put_state("milliseconds", milliseconds)

    # Reading

    def rows(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """The outbox in order: counter, topic, previous, count, whole, checksum, bytes of the body."""
        yield from self.db.execute(
            "select counter, topic, previous, count, whole, checksum, length(body) from pubsub_outbox order by counter"
        )

    def has_row(self, counter: int) -> bool:
        """Whether a row is in the outbox."""
        return bool(self.db.execute("select count(*) from pubsub_outbox where counter = ?", (counter,)).get)

    def body(self, counter: int) -> bytes:
        """The batch of an outbox row.

        Raises:
            StorageError: it cannot be read.
        """
        with storage_errors(self.path):
            body = self.db.execute("select body from pubsub_outbox where counter = ?", (counter,)).get
        if not isinstance(body, bytes):
            raise StoreDamaged(self.path, f"the outbox row {counter} is gone")
        return body

    def chains(self) -> Iterator[tuple[str, int, int, str]]:
        """Topic, previous counter, cleared power cut and log of each topic that was put to."""
        yield from self.db.execute("select topic, previous, cleared, log from pubsub_chains")

    def subscriptions(self) -> Iterator[tuple[str, bool, bool, int, str, Position | None, Position | None, int]]:
        """Topic, wanted, settled, number, log, last position, position tried and attempts of each subscription."""
        for topic, wanted, settled, number, log, last_log, last, tried_log, tried, attempts in self.db.execute(
            "select topic, wanted, settled, number, log, last_log, last_offset, tried_log, tried_offset, attempts"
            " from pubsub_subscriptions"
        ):
            position = None if last_log is None else (last_log, last)
            yield topic, bool(wanted), bool(settled), number, log, position, (tried_log, tried), attempts

    def taken(self, topic: str) -> dict[str, int]:
        """The last counter taken of each publisher of a topic."""
        return dict(self.db.execute("select publisher, counter from pubsub_taken where topic = ?", (topic,)))

    def untold(self) -> list[tuple[str, str, str, str]]:
        """Topic, first and last position and reason of each loss that the user was not told of, oldest first."""
        return list(
            self.db.execute(
                "select topic, first, last, error from pubsub_dead_letters join pubsub_untold using (id, topic)"
                " order by id"
            )
        )

    def dead_letters(self, topic: str | None) -> list[tuple[Any, ...]]:
        """The dead letters of one topic or of all, oldest first, in the order of `Buried`'s fields."""
        return list(
            self.db.execute(
                "select topic, first, last, publisher, counter, stamp, body, error, attempts, at"
                " from pubsub_dead_letters where ?1 is null or topic = ?1 order by id",
                (topic,),
            )
        )

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that opened it. The connection is left alone for good, and out of reach."""
        forks.keep(self.db)
        self.db = _Inherited(error)  # type: ignore[assignment]
        _open_here.discard(self._place)

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
            if self._space is not None:
                self._space.release()  # SQLite moves the WAL now.
            self.db.close()
            _open_here.discard(self._place)
            with suppress(OSError):
                self._pid.unlink()


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


def _add_row(db: apsw.Connection, row: c.RowAdded) -> None:
    db.execute(
        "insert into pubsub_outbox values (?, ?, ?, ?, ?, ?, ?)",
        (row.counter, row.topic, row.previous, row.count, row.whole, row.checksum, row.body),
    )


def _remove_rows(db: apsw.Connection, change: c.RowsRemoved) -> None:
    db.executemany("delete from pubsub_outbox where counter = ?", [(counter,) for counter in change.counters])


def _unchain(db: apsw.Connection, change: c.RowUnchained) -> None:
    db.execute("update pubsub_outbox set previous = 0 where counter = ?", (change.counter,))


def _move_chain(db: apsw.Connection, chain: c.ChainMoved) -> None:
    db.execute(
        "insert or replace into pubsub_chains values (?, ?, ?, ?)",
        (chain.topic, chain.previous, chain.cleared, chain.log),
    )


def _intend(db: apsw.Connection, change: c.Intended) -> None:
    db.execute(
        "insert into pubsub_subscriptions (topic, wanted, settled, number, log) values (?, ?, 0, 0, '')"
        " on conflict (topic) do update set wanted = excluded.wanted, settled = 0, last_log = null,"
        " last_offset = null, tried_log = null, tried_offset = null, attempts = 0",
        (change.topic, int(change.on)),
    )


def _confirm(db: apsw.Connection, change: c.Confirmed) -> None:
    log, offset = change.position or (None, None)
    db.execute(
        "update pubsub_subscriptions set settled = 1, number = ?, last_log = ?, last_offset = ?, log = ?"
        " where topic = ?",
        (change.number, log, offset, change.log, change.topic),
    )


def _take(db: apsw.Connection, change: c.Taken) -> None:
    log, offset = change.position
    db.execute(
        "update pubsub_subscriptions set last_log = ?, last_offset = ? where topic = ?", (log, offset, change.topic)
    )
    for publisher, counter in change.counters.items():
        db.execute("insert or replace into pubsub_taken values (?, ?, ?)", (change.topic, publisher, counter))


def _try(db: apsw.Connection, change: c.Tried) -> None:
    log, offset = change.position
    db.execute(
        "update pubsub_subscriptions set tried_log = ?, tried_offset = ?, attempts = ? where topic = ?",
        (log, offset, change.attempts, change.topic),
    )


def _bury(db: apsw.Connection, letter: c.Buried) -> None:
    db.execute(
        "insert into pubsub_dead_letters (topic, first, last, publisher, counter, stamp, body, error, attempts, at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            letter.topic,
            letter.first,
            letter.last,
            letter.publisher,
            letter.counter,
            letter.stamp,
            letter.body,
            letter.error,
            letter.attempts,
            letter.at,
        ),
    )
    if letter.body is None:
        db.execute("insert into pubsub_untold values (last_insert_rowid(), ?)", (letter.topic,))


def _tell(db: apsw.Connection, told: c.Told) -> None:
    db.execute(
        "delete from pubsub_untold where id in (select id from pubsub_untold where topic = ? order by id limit ?)",
        (told.topic, told.count),
    )


def _renew(db: apsw.Connection, change: c.Renewed) -> None:
    db.execute("update pubsub_state set value = ? where key = 'store'", (change.store,))
    db.execute("update pubsub_state set value = 0 where key = 'cuts'")
    db.execute("update pubsub_outbox set whole = 0")
    db.execute("delete from pubsub_chains")


_APPLY: Final[dict[type, Callable[[apsw.Connection, Any], None]]] = {
    c.RowAdded: _add_row,
    c.RowsRemoved: _remove_rows,
    c.RowUnchained: _unchain,
    c.ChainMoved: _move_chain,
    c.Intended: _intend,
    c.Confirmed: _confirm,
    c.Taken: _take,
    c.Tried: _try,
    c.Buried: _bury,
    c.Told: _tell,
    c.Renewed: _renew,
}
