"""The routes file: the holders of topics, and registers, kept over a restart (SQLite through apsw).

With it, a restarted proxy assigns no topic of a dead server to another one. Without it, the proxy would have to wait
for that server's announcement (`store_directory`). So a change is on the disk (by fsync, not only written) before any
later message is forwarded.

A file that is damaged or has a newer format stops the proxy with an error. Only a person may decide to begin with an
empty file, because the logs that operators gave up are forgotten with it. One process at a time has the file open.

A file has a random *identity*, set when it is created. By it members notice that a proxy has lost its promises.

The rule is docs/explanation/ownership.md, O7.
"""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub.base.database import CAREFUL, begin_file
from pubsub.base.limits import NUMBER_MAX
from pubsub.base.wal import log_of
from pubsub.errors import THIS_PROCESS, DecodeError, StorageError, StoreDamaged, StoreFull, StoreInUse, StoreNewer
from pubsub.protocol.deletion_table import Deletion, read_deletion
from pubsub.protocol.names import is_hex, is_id, is_topic
from pubsub.protocol.pattern_table import PatternRow, read_pattern
from pubsub.protocol.register import View
from pubsub.proxy.remembered import AbandonedLog, RegisterRow, Remembered, RemovedStore, RouteChanges, StoreRow

FILE_NAME: Final = "routes.db"
FORMAT: Final = 5
_APPLICATION: Final = 0x70726F78
_REMEDY: Final = (
    "put it aside and start the proxy without it, best while every server is running: it waits for the others, and has "
    "forgotten which logs operators gave up"
)
_SCHEMA: Final = (
    "create table stores (store text primary key, server text not null, incarnation integer not null,"
    " change integer not null, address text not null, overflow integer not null) without rowid",
    "create table holders (topic text, store text, log text not null, primary key (topic, store)) without rowid",
)
_SINCE: Final = {
    2: (
        "create table dead (topic text, log text, server text not null, store text not null, address text not null,"
        " primary key (topic, log)) without rowid",
    ),
    3: (
        "alter table stores add column heard integer not null default 1",
        "update stores set heard = 0 where incarnation = 0",
        "create table gone (store text primary key, incarnation integer not null, here integer not null) without rowid",
    ),
    4: (
        "create table registers (store text primary key, server text not null, promised integer not null,"
        " ballot integer not null,"
        " term integer not null, leader text not null, address text not null, members text not null,"
        " in_sync text not null) without rowid",
        "create table identity (identity text not null)",
    ),
    5: ("alter table holders add column given integer not null default 0",),
}
"""The statements that each format added."""
_BESIDE: Final = ("create table if not exists defaults (store text primary key, digest text not null) without rowid",)
"""Tables that earlier releases of this format leave alone."""
_IDENTITY_SINCE: Final = 4
_PATTERNS: Final = (
    "create table if not exists pattern (subscriber text, pattern text, number integer not null,"
    " subscribed integer not null, stamp integer not null, primary key (subscriber, pattern)) without rowid"
)
"""An earlier release ignores this table. Servers that know a pattern let go of nothing by its answers."""
_DELETIONS: Final = (
    "create table if not exists deletion (topic text primary key, number integer not null) without rowid"
)

AHEAD_LOG_BYTES: Final = 2 * 1024 * 1024
"""Size to which the write-ahead log is grown in advance. SQLite overwrites it from its beginning."""

LOOK_WRITES: Final = 500
"""Number of writes after which the reserved space is checked."""

AHEAD_PAGES: Final = 256
"""Free pages of 4 KiB that the file gets in advance, enough for 10,000 topics or more."""

_PAGE_BYTES: Final = 4 * 1024

_CHECKPOINT_PAGES: Final = 256
"""Pages of the log after which SQLite copies it back, so that it does not grow."""

_LOG_HEAD_BYTES: Final = 32

_PRAGMAS: Final = (
    ("locking_mode", "exclusive"),
    ("journal_mode", "wal"),
    ("synchronous", 2),
    ("wal_autocheckpoint", _CHECKPOINT_PAGES),
)


log: Final = logging.getLogger(__name__)

_open_here: Final[dict[str, int]] = {}
"""Each file that is open here, with the ID of the process that opened it."""


class RoutesStore:
    """The routes file of one proxy.

    Args:
        directory: its directory, created if it is missing.
        vfs: SQLite's file system, if it is not that of the machine; the directory is not created there.
        identity: 16 hex digits for a new file; "" for random ones.
        ahead: reserve space in advance; None to do so on the machine's file system only.

    Attributes:
        identity: the identity of this file.

    Raises:
        StoreInUse: another process has it open.
        StoreNewer: a newer release wrote it.
        StoreDamaged: the file is damaged.
        StorageError: the directory cannot be used.
    """

    def __init__(
        self, directory: Path, *, vfs: str | None = None, identity: str = "", ahead: bool | None = None
    ) -> None:
        self._ahead = vfs is None if ahead is None else ahead
        self._written = 0
        self.path = str(directory / FILE_NAME)
        try:
            if vfs is None:
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(str(directory), f"cannot be used: {error.strerror}") from None
        self.identity = identity or secrets.token_hex(8)
        self._db: apsw.Connection | None = None
        if vfs is None:
            begin_file(Path(self.path), _PAGE_BYTES)
        try:
            with self._translated():
                self._db = apsw.Connection(self.path, vfs=vfs)
                self._db.execute(CAREFUL)
                self._open(self._db)
                self._take_ahead(self._db)
        except StorageError:
            self._close()
            raise
        _open_here[os.path.realpath(self.path)] = os.getpid()

    def _open(self, db: apsw.Connection) -> None:
        db.pragma("locking_mode", "exclusive")  # Before the first read, which then needs no shared memory.
        if (version := db.pragma("user_version")) > FORMAT:
            raise StoreNewer(self.path, version, FORMAT)
        for name, wanted in _PRAGMAS:
            # Set and read back each pragma alone: several in one `execute` stop at the first that returns a row.
            db.pragma(name, wanted)
            if (found := db.pragma(name)) != wanted:
                raise StorageError(self.path, f"{name} is {found}, not {wanted}")
        db.execute("begin immediate")  # Takes the lock, and keeps it.
        if db.pragma("user_version") == 0 and db.execute("select count(*) from sqlite_schema").get == 0:
            for statement in _SCHEMA:
                db.execute(statement)
            db.pragma("application_id", _APPLICATION)
            db.pragma("user_version", 1)
        if db.pragma("application_id") == _APPLICATION:
            for version in range(db.pragma("user_version") + 1, FORMAT + 1):
                for statement in _SINCE[version]:
                    db.execute(statement)
                if version == _IDENTITY_SINCE:
                    db.execute("insert into identity values (?)", (self.identity,))
                db.pragma("user_version", version)
            for statement in (*_BESIDE, _PATTERNS, _DELETIONS):
                db.execute(statement)
        db.execute("commit")
        if db.pragma("application_id") != _APPLICATION or db.pragma("user_version") != FORMAT:
            raise StoreDamaged(self.path, f"not a routes file; {_REMEDY}")
        if (verdict := db.pragma("quick_check")) != "ok":
            raise StoreDamaged(self.path, f"damaged ({str(verdict).splitlines()[0][:200]}); {_REMEDY}")
        self.identity = str(db.execute("select identity from identity").get)
        if not is_hex(self.identity):
            raise StoreDamaged(self.path, f"damaged (no identity); {_REMEDY}")

    def _take_ahead(self, db: apsw.Connection) -> None:
        """Grow the file and its log in advance, so that the proxy can work on a full disk.

        A server on the same full disk frees space by acknowledgements, which arrive through the proxy.
        """
        if not self._ahead:
            return
        try:
            # Keep the log when the file is closed. Otherwise the next start would need its space again.
            keep = ctypes.c_int(1)
            db.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(keep))
            if db.pragma("freelist_count") < AHEAD_PAGES // 2:
                with db:
                    db.execute("create table ahead (body blob)")
                    db.execute("insert into ahead values (zeroblob(?))", (AHEAD_PAGES * db.pragma("page_size"),))
                with db:
                    db.execute("drop table ahead")
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._grow_log(db)
        except apsw.FullError:
            log.warning(
                "no space to grow %s in advance: on a full disk the proxy forwards nothing, free some space", self.path
            )

    def _grow_log(self, db: apsw.Connection) -> None:
        wal = log_of(Path(self.path))
        if wal.exists() and wal.stat().st_size >= AHEAD_LOG_BYTES:
            return
        cache = db.pragma("cache_size")
        db.pragma("cache_size", 8)  # Pages beyond the cache go to the log before the commit, and grow it.
        try:
            db.execute("begin immediate")
            db.execute("create table ahead (body blob)")
            for _ in range(3):
                db.execute("insert into ahead values (zeroblob(?))", (AHEAD_LOG_BYTES // 2,))
        finally:
            if db.in_transaction:
                db.execute("rollback")
            db.pragma("cache_size", cache)

    def load(self) -> Remembered:
        """Return the contents of the file.

        Raises:
            StoreDamaged: it has a row that no proxy writes.
            StorageError: the disk cannot be read.
        """
        assert self._db is not None
        with self._translated():
            rows = self._db.execute("select stores.*, ifnull(digest, '') from stores left join defaults using (store)")
            stores = [StoreRow(a, b, c, d, e, bool(f), bool(g), h) for a, b, c, d, e, f, g, h in rows]
            rows = self._db.execute("select store, incarnation, here from gone")
            gone = tuple(RemovedStore(a, b, bool(c)) for a, b, c in rows)
            holders = list(self._db.execute("select topic, store, log from holders order by topic, store"))
            given = tuple(self._db.execute("select topic, store, given from holders where given != 0"))
            rows = self._db.execute("select topic, log, server, store, address from dead order by topic, log")
            abandoned = tuple(AbandonedLog(*row) for row in rows)
            registers = tuple(map(_register, self._db.execute("select * from registers order by store")))
            patterns = list(self._db.execute("select * from pattern order by subscriber, pattern"))
            deletions = list(self._db.execute("select * from deletion order by topic"))
        known = {row.store for row in stores}
        valid = all(_is_valid(row) for row in stores) and all(
            isinstance(topic, str) and is_topic(topic) and store in known and isinstance(log, str) and is_hex(log)
            for topic, store, log in holders
        )
        valid = valid and all(
            all(isinstance(word, str) for word in astuple(row))
            and (is_topic(row.topic) and is_hex(row.log) and is_id(row.server) and (not row.store or is_hex(row.store)))
            for row in abandoned
        )
        valid = valid and all(
            isinstance(row.store, str) and is_hex(row.store) and isinstance(row.incarnation, int) for row in gone
        )
        valid = valid and all(_valid_register(row) for row in registers)
        valid = valid and all(isinstance(after, int) and 0 < after <= NUMBER_MAX for _, _, after in given)
        rows_of_patterns = tuple(map(_pattern, patterns))
        rows_of_deletions = tuple(map(_deletion, deletions))
        if not valid or None in rows_of_patterns or None in rows_of_deletions:
            raise StoreDamaged(self.path, f"damaged (rows that no proxy writes); {_REMEDY}")
        known_patterns = tuple(filter(None, rows_of_patterns))
        known_deletions = tuple(filter(None, rows_of_deletions))
        return Remembered(
            stores, holders, abandoned, gone, registers, given, known_patterns, known_deletions, self.identity
        )

    def write(self, changes: RouteChanges) -> None:
        """Write the changes. When this returns, they survive a power cut.

        Raises:
            StoreFull: no space is left; nothing was written, and a later attempt may succeed.
            StorageError: the disk failed, and the contents of the file are uncertain.
        """
        db = self._db
        assert db is not None
        with self._translated():
            db.execute("begin immediate")
            try:
                self._apply(db, changes)
                db.execute("commit")
            except BaseException:
                if db.in_transaction:
                    db.execute("rollback")
                raise
            self._written += 1
            if self._written % LOOK_WRITES == 0:
                self._take_ahead(db)

    @staticmethod
    def _apply(db: apsw.Connection, changes: RouteChanges) -> None:
        for store, row in changes.stores.items():
            if row is None:
                db.execute("delete from stores where store = ?", (store,))
                db.execute("delete from defaults where store = ?", (store,))
            else:
                values = (
                    store,
                    row.server,
                    row.incarnation,
                    row.change,
                    row.address,
                    int(row.overflow),
                    int(row.announced),
                )
                db.execute("insert or replace into stores values (?, ?, ?, ?, ?, ?, ?)", values)
                if row.defaults:
                    db.execute("insert or replace into defaults values (?, ?)", (store, row.defaults))
                else:
                    db.execute("delete from defaults where store = ?", (store,))
        for store, mark in changes.gone.items():
            if mark is None:
                db.execute("delete from gone where store = ?", (store,))
            else:
                db.execute("insert or replace into gone values (?, ?, ?)", (store, mark.incarnation, int(mark.here)))
        gone = [key for key, log in changes.holders.items() if log is None]
        held = [(*key, log, changes.given.get(key, 0)) for key, log in changes.holders.items() if log is not None]
        if gone:
            db.executemany("delete from holders where topic = ? and store = ?", gone)
        if held:
            db.executemany("insert or replace into holders values (?, ?, ?, ?)", held)
        if changes.abandoned:
            rows = [astuple(lost) for lost in changes.abandoned.values()]
            db.executemany("insert or replace into dead (topic, log, server, store, address) values (?,?,?,?,?)", rows)
        if changes.patterns:
            db.executemany("insert or replace into pattern values (?, ?, ?, ?, ?)", list(changes.patterns.values()))
        if changes.deletions:
            db.executemany("insert or replace into deletion values (?, ?)", list(changes.deletions.items()))
        for register in changes.registers.values():
            term, primary, address, members, in_sync = register.view
            db.execute(
                "insert or replace into registers values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(register.store, register.server, register.promised, register.ballot),
                    *(term, primary, address, ",".join(members), ",".join(in_sync)),
                ),
            )

    def close(self) -> None:
        if self._db is not None:
            _open_here.pop(os.path.realpath(self.path), None)
        self._close()

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        copied = False
        if self._ahead:
            with suppress(apsw.Error):
                pages, done = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                copied = pages == done >= 0
        db.close()
        # The log is kept only for its space. Overwrite its head, so that SQLite does not apply it to another file that
        # takes the place of this one.
        if copied:
            with suppress(OSError), log_of(Path(self.path)).open("r+b") as log_file:
                log_file.write(bytes(_LOG_HEAD_BYTES))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise SQLite's errors as errors of this package."""
        try:
            yield
        except apsw.FullError:
            raise StoreFull(self.path, "no space is left on the disk") from None
        except apsw.BusyError:
            here = _open_here.get(os.path.realpath(self.path)) == os.getpid()  # A fork copies the entry.
            raise StoreInUse(self.path, THIS_PROCESS if here else "another proxy") from None
        except (apsw.NotADBError, apsw.CorruptError, UnicodeDecodeError) as error:
            raise StoreDamaged(self.path, f"damaged ({error}); {_REMEDY}") from None
        except apsw.Error as error:
            raise StorageError(self.path, f"cannot be used: {error}") from None


def _is_valid(row: StoreRow) -> bool:
    """Return whether `write` can have written the row."""
    texts = isinstance(row.store, str) and isinstance(row.server, str) and isinstance(row.address, str)
    numbers = isinstance(row.incarnation, int) and isinstance(row.change, int)
    return (
        texts
        and numbers
        and is_hex(row.store)
        and isinstance(row.defaults, str)
        and (not row.defaults or is_hex(row.defaults))
        and (is_id(row.server) or not (row.server or row.announced))
        and min(row.incarnation, row.change) >= 0
        and max(row.incarnation, row.change) <= NUMBER_MAX
    )


def _pattern(row: Sequence[Any]) -> PatternRow | None:
    """Return the pattern of a row, or None if `write` cannot have written it."""
    try:
        return read_pattern(" ".join(str(value) for value in row))
    except (DecodeError, UnicodeEncodeError):
        return None


def _deletion(row: Sequence[Any]) -> Deletion | None:
    """Return the deletion of a row, or None if `write` cannot have written it."""
    try:
        return read_deletion(" ".join(str(value) for value in row))
    except (DecodeError, UnicodeEncodeError):
        return None


def _register(row: Sequence[Any]) -> RegisterRow:
    store, server, promised, ballot, term, primary, address, members, in_sync = row
    view = View(term, primary, address, tuple(str(members).split(",")), tuple(str(in_sync).split(",")))
    return RegisterRow(store, promised, ballot, view, server)


def _valid_register(row: RegisterRow) -> bool:
    """Return whether `write` can have written the row."""
    numbers = (row.view.term, row.ballot, row.promised)
    return (
        isinstance(row.store, str)
        and is_hex(row.store)
        and isinstance(row.server, str)
        and is_id(row.server)
        and all(isinstance(number, int) for number in numbers)
        and min(numbers) >= 0
        and max(numbers) <= NUMBER_MAX
        and row.ballot <= row.promised
        and not row.view.fault()
    )
