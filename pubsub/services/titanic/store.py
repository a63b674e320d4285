"""Titanic's store: one SQLite file, with a row for each request.

A commit that has returned is on disk (`synchronous=FULL`, with a write-ahead log). If the disk or the set limit is
full, no more requests are accepted. Replies and closings still find room: in the part of the limit that is kept free,
and in a reserve beside the file.
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
"""Size of the reserve beside the file, for replies and closings when the disk is full."""

FILLED_MAX: Final = 0.9
"""Part of the limit up to which requests are accepted. The rest is for their replies."""

_PRAGMAS: Final = (("journal_mode", "wal"), ("synchronous", 2), ("temp_store", 2), ("secure_delete", 0))
_SCHEMA: Final = (
    "create table meta (name text primary key, value) without rowid",
    "create table request (number integer primary key, id blob not null unique, service blob not null,"
    " key blob not null, digest blob not null, state integer not null, age real not null, body blob)",
)


class Store:
    """Titanic's directory, open for one process.

    Args:
        directory: created if it does not exist.
        bytes_max: size limit of the file; 0: the limit of the disk.

    Raises:
        StoreInUse: another process has the directory open.
        StoreNewer, StoreDamaged, StorageError, ConfigurationError: the directory cannot be used.
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
        """The last stored age, in seconds."""
        try:
            return float(self._db.execute("select value from meta where name = 'age'").get)
        except apsw.Error as error:
            raise translate(error, self.path) from None
        except (TypeError, ValueError) as error:
            raise StoreDamaged(str(self.path), f"damaged: {error}") from None

    def entries(self) -> list[Entry]:
        """All requests, in the order of their acceptance."""
        try:
            rows = self._db.execute("select id, service, key, digest, state, age from request order by number")
            return [_entry(*row) for row in rows]
        except apsw.Error as error:
            raise translate(error, self.path) from None
        except (TypeError, ValueError) as error:
            raise StoreDamaged(str(self.path), f"damaged: {error}") from None

    def body(self, entry: Entry) -> Frames | None:
        """The body of the reply, or of the request if there is no reply; None: there is neither, or it is damaged."""
        try:
            found = self._db.execute("select body from request where id = ?", (entry.id,)).get
        except apsw.Error as error:
            raise translate(error, self.path) from None
        return unpack(found) if isinstance(found, bytes) else None

    def accepts(self) -> bool:
        if not self._reserved:
            self._reserved = self._reserve.make()
        if not self._pages_max:
            return self._reserved
        used = self._db.pragma("page_count") - self._db.pragma("freelist_count")
        return self._reserved and bool(used < self._pages_max * FILLED_MAX)

    def write(self, changes: Sequence[Change], age: float) -> None:
        """Store changes, in order, in one transaction. They are on disk when this returns.

        Args:
            age: Titanic's age in seconds.

        Raises:
            StoreFull: no change was stored.
            StorageError: the disk cannot be written.
        """
        try:
            self._db.execute("begin immediate")
            for change in changes:
                self._make(change)
            self._db.execute("update meta set value = ? where name = 'age'", (age,))
            self._db.execute("commit")
        except apsw.Error as error:
            with suppress(apsw.Error):  # With a full disk SQLite has rolled back by itself.
                if self._db.in_transaction:
                    self._db.execute("rollback")
            raise translate(error, self.path) from None

    def release_reserve(self) -> bool:
        """Free the reserve for the file. Return whether there was one."""
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
        with suppress(apsw.Error):
            self._db.close()
        self._lock_file.close()


def _entry(name: Any, service: Any, key: Any, digest: Any, state: Any, age: Any) -> Entry:
    """Return an entry from its row.

    Raises:
        ValueError: no version writes such a row.
    """
    if {type(one) for one in (name, service, key, digest)} != {bytes} or not isinstance(age, float | int):
        raise ValueError("the row is not one of Titanic")
    return Entry(name, service, key, digest, State(state), age)


def pack(frames: Frames) -> bytes:
    """Return the frames as one value: a checksum, the number of frames, their lengths, the frames."""
    lengths = struct.pack(f">I{len(frames)}I", len(frames), *map(len, frames))
    packed = lengths + b"".join(frames)
    return crc32(packed).to_bytes(4, "big") + packed


def unpack(packed: bytes) -> Frames | None:
    """Return the frames of a body; None if it is damaged."""
    if len(packed) < 8 or crc32(memoryview(packed)[4:]) != int.from_bytes(packed[:4], "big"):
        return None
    (number,) = struct.unpack_from(">I", packed, 4)
    lengths = struct.unpack_from(f">{number}I", packed, 8)
    frames, at = [], 8 + 4 * number
    for length in lengths:
        frames.append(packed[at : at + length])
        at += length
    return tuple(frames)
