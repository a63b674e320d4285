"""Titanic's store: one SQLite file, in which a request is a row.

A commit that returned is on the disk (`synchronous=FULL`, with a write-ahead log). Where the disk, or the limit that
was set, is full, nothing more is accepted; replies and closings still find room: in the part of the limit that is kept
free, and in a reserve beside the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import apsw

from pubsub.base.database import lock_directory, open_database, translate
from pubsub.base.reserve import ReserveFile
from pubsub.errors import StoreDamaged, StoreNewer
from pubsub.services.core.interface import Frames
from pubsub.services.core.titanic.requests import Accepted, Change, Closed, Entry, Expired, Replied, State

FILE: Final = "titanic.db"
FORMAT: Final = 1
APPLICATION_ID: Final = 0x50505454

RESERVE_BYTES: Final = 4 * 1024 * 1024
"""Kept beside the file, for replies and closings when the disk is full."""

FILLED_MAX: Final = 0.9
"""Part of the limit up to which requests are accepted; the rest is for their replies."""

_PRAGMAS: Final = (("journal_mode", "wal"), ("synchronous", 2), ("temp_store", 2), ("secure_delete", 0))
_SCHEMA: Final = (
    "create table meta (name text primary key, value) without rowid",
    "create table request (number integer primary key, id blob not null unique, service blob not null,"
    " key blob not null, digest blob not null, state integer not null, age real not null, body blob)",
)


class Store:
    """Titanic's directory, open for one process.

    Args:
        directory: made if it is not there.
        bytes_max: of the file; 0: the disk's limit.

    Raises:
        StoreInUse: another process has it open.
        StoreNewer, StoreDamaged, StorageError, ConfigurationError: it cannot be used.
    """

    def __init__(self, directory: Path, bytes_max: int = 0) -> None:
        self.path = directory / FILE
        self._lock_file = lock_directory(directory)
        try:
            self._db = open_database(self.path, _PRAGMAS)
            self._open_format()
            self._pages_max = max(64, bytes_max // self._db.pragma("page_size")) if bytes_max else 0
            if self._pages_max:
                self._db.pragma("max_page_count", self._pages_max)
        except apsw.Error as error:
            self._lock_file.close()
            raise translate(error, self.path) from None
        except BaseException:
            self._lock_file.close()
            raise
        self._reserve = ReserveFile(directory / "reserve", RESERVE_BYTES)
        self._reserved = self._reserve.make()

    def _open_format(self) -> None:
        found = self._db.pragma("user_version")
        if found > FORMAT:
            raise StoreNewer(str(self.path), found, FORMAT)
        if found == 0:
            with self._db:
                for statement in _SCHEMA:
                    self._db.execute(statement)
                self._db.execute("insert into meta values ('age', 0.0)")
                self._db.pragma("application_id", APPLICATION_ID)
                self._db.pragma("user_version", FORMAT)
        elif self._db.pragma("application_id") != APPLICATION_ID:
            raise StoreDamaged(str(self.path), "not a store of Titanic")

    def age(self) -> float:
        """What was stored last, in seconds."""
        try:
            return float(self._db.execute("select value from meta where name = 'age'").get)
        except apsw.Error as error:
            raise translate(error, self.path) from None
        except (TypeError, ValueError) as error:
            raise StoreDamaged(str(self.path), f"damaged: {error}") from None

    def entries(self) -> list[Entry]:
        """All requests, the one that was accepted first at the beginning."""
        try:
            rows = self._db.execute("select id, service, key, digest, state, age from request order by number")
            return [_entry(*row) for row in rows]
        except apsw.Error as error:
            raise translate(error, self.path) from None
        except (TypeError, ValueError) as error:
            raise StoreDamaged(str(self.path), f"damaged: {error}") from None

    def body(self, entry: Entry) -> Frames | None:
        """The reply to a request where that is there, else the request; None: neither is, or it is damaged."""
        try:
            found = self._db.execute("select body from request where id = ?", (entry.id,)).get
        except apsw.Error as error:
            raise translate(error, self.path) from None
        return unpack(found) if isinstance(found, bytes) else None

    def accepts(self) -> bool:
        """Whether there is room for more requests."""
        if not self._reserved:
            self._reserved = self._reserve.make()
        if not self._pages_max:
            return self._reserved
        used = self._db.pragma("page_count") - self._db.pragma("freelist_count")
        return self._reserved and bool(used < self._pages_max * FILLED_MAX)

    def write(self, changes: Sequence[Change], age: float) -> None:
        """Make changes in one transaction, which is on the disk when this returns.

        Args:
            changes: in their order.
            age: of Titanic, in seconds.

        Raises:
            StoreFull: nothing of it was done.
            StorageError: the disk cannot be written.
        """
        try:
            self._db.execute("begin immediate")
            for change in changes:
                self._make(change)
            self._db.execute("update meta set value = ? where name = 'age'", (age,))
            self._db.execute("commit")
        except apsw.Error as error:
            with suppress(apsw.Error):  # Where the disk is full SQLite has undone it itself.
                if self._db.in_transaction:
                    self._db.execute("rollback")
            raise translate(error, self.path) from None

    def release_reserve(self) -> bool:
        """Give the reserve to the file; whether there was one."""
        had, self._reserved = self._reserved, False
        self._reserve.release()
        return had

    def _make(self, change: Change) -> None:
        execute = self._db.execute
        if isinstance(change, Accepted):
            entry = change.entry
            execute(
                "insert into request (id, service, key, digest, state, age, body) values (?, ?, ?, ?, ?, ?, ?)",
                (entry.id, entry.service, entry.key, entry.digest, int(State.PENDING), entry.age, pack(change.body)),
            )
        elif isinstance(change, Replied):
            execute(
                "update request set state = ?, body = ? where id = ? and state = ?",
                (int(State.REPLIED), pack(change.body), change.entry.id, int(State.PENDING)),
            )
        elif isinstance(change, Closed) and change.entry.key:
            execute("update request set state = ?, body = null where id = ?", (int(State.CLOSED), change.entry.id))
        elif isinstance(change, Closed):
            execute("delete from request where id = ?", (change.entry.id,))
        elif isinstance(change, Expired):
            for entry in change.entries:
                execute("delete from request where id = ?", (entry.id,))

    def close(self) -> None:
        """Release the directory."""
        with suppress(apsw.Error):
            self._db.close()
        self._lock_file.close()


def _entry(name: Any, service: Any, key: Any, digest: Any, state: Any, age: Any) -> Entry:
    """An entry from its row.

    Raises:
        ValueError: it was never written so.
    """
    if {type(one) for one in (name, service, key, digest)} != {bytes} or not isinstance(age, float | int):
        raise ValueError("a request that was never accepted")
    return Entry(name, service, key, digest, State(state), age)


def pack(frames: Frames) -> bytes:
    """A body as one value: a checksum, the number of frames, their lengths, the frames."""
    lengths = struct.pack(f">I{len(frames)}I", len(frames), *map(len, frames))
    packed = lengths + b"".join(frames)
    return crc32(packed).to_bytes(4, "big") + packed


def unpack(packed: bytes) -> Frames | None:
    """The frames of a body; None where it is damaged."""
    if len(packed) < 8 or crc32(memoryview(packed)[4:]) != int.from_bytes(packed[:4], "big"):
        return None
    (number,) = struct.unpack_from(">I", packed, 4)
    lengths = struct.unpack_from(f">{number}I", packed, 8)
    frames, at = [], 8 + 4 * number
    for length in lengths:
        frames.append(packed[at : at + length])
        at += length
    return tuple(frames)
