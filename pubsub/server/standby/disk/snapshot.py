"""A store as it was at one moment, page by page, while it is written further.

A read transaction on a separate connection pins the moment. SQLite hands out no pages, so this module reads them
through SQLite's own file handles. For each page it takes the last frame in the write-ahead log of that moment. If the
log had none, it takes the page of the file. Both stay unchanged while the transaction is open:

    the log    It does not start over while a connection reads from it. If it did start over, the file had all of it
               when the transaction began. Nothing is copied into the file while such a transaction is open.
    the file   It receives from the log only frames that were there at that moment. These pages are read from the log.

The log grows meanwhile, so the caller must watch its size (`log_bytes`).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import apsw

from pubsub.base.database import open_database, translate
from pubsub.base.wal import log_of
from pubsub.protocol.standby import Copy
from pubsub.server.standby.disk.applied import applied_entry
from pubsub.server.storage.store import Store

HASH_BYTES: Final = 16
RANGE_PAGES: Final = 1024
"""Pages compared at a time: 16 MiB. Only the pages that differ are in memory."""

MESSAGE_BYTES: Final = 1024 * 1024
"""Bytes of pages in one COPY."""

LOG_BYTES_MAX: Final = 4 << 30
"""Size of the write-ahead log beyond which the snapshot is given up and the copy starts again: it lacks less then."""

_NUMBER: Final = struct.Struct(">I")
_FILE, _LOG = 0, 1
_LOG_HEADER: Final = 32
_FRAME: Final = struct.Struct(">IIIIII")


def hash_of(page: bytes | memoryview) -> bytes:
    """Return the hash that two members compare instead of a page."""
    return blake2b(page, digest_size=HASH_BYTES).digest()


class Snapshot:
    """The store at this moment. Make it between two commits, on the thread that writes; read it on any single thread.

    Args:
        store: the store to read.

    Raises:
        StorageError: it cannot be read.

    Attributes:
        entry: the last entry of the store.
        pages: number of pages.
        page_bytes: size of each page.
    """

    def __init__(self, store: Store) -> None:
        self._path = store.path
        self._log_path = log_of(store.path)
        self._db = open_database(store.path, (("wal_autocheckpoint", 0),))
        try:
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._db.execute("begin")
            self.page_bytes = int(self._db.pragma("page_size"))
            self.pages = int(self._db.pragma("page_count"))
            self._db.execute("select 1 from sqlite_schema").fetchall()  # Pins the moment.
            frames, _ = store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            self.entry = applied_entry(store)
            self._header = self._read(_LOG, 0, _LOG_HEADER)
            self._frames = max(0, frames)
        except apsw.Error as error:
            self.close()
            raise translate(error, self._path) from None
        self._places: dict[int, int] | None = None

    def log_bytes(self) -> int:
        return self._log_path.stat().st_size if self._log_path.exists() else 0

    def _read(self, file: int, offset: int, size: int) -> bytes:
        """Read bytes of the store's file or of its log, as many as there are; zeros beyond the end.

        This reads through SQLite: closing a file descriptor of our own would release SQLite's locks on that file.
        """
        return self._db.read("main", file, offset, size)[1]

    def _in_log(self) -> dict[int, int]:
        """Return the offset in the log of each page that the log had at the moment of the snapshot."""
        if self._places is None:
            self._places = {}
            step = _FRAME.size + self.page_bytes
            for place in range(_LOG_HEADER, _LOG_HEADER + self._frames * step, step):
                page, _, *salts, _, _ = _FRAME.unpack(self._read(_LOG, place, _FRAME.size))
                if struct.pack(">II", *salts) == self._header[16:24]:
                    self._places[page] = place + _FRAME.size
            if self._began_anew():
                self._places = {}
        return self._places

    def _began_anew(self) -> bool:
        """Return True if the log has started over. Call it after a read of the log: its head changes first."""
        return self._read(_LOG, 0, _LOG_HEADER) != self._header

    def page(self, number: int) -> bytes:
        """Return one page; the first is 1.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            place = self._in_log().get(number)
            if place is not None:
                data = self._read(_LOG, place, self.page_bytes)
                if not self._began_anew():
                    return data
                self._places = {}
            return self._read(_FILE, (number - 1) * self.page_bytes, self.page_bytes)
        except apsw.Error as error:
            raise translate(error, self._path) from None

    def begin(self, server: str, store: str, member: str, term: int, token: int) -> Copy:
        """Return the first message of a copy of this snapshot."""
        return Copy(server, store, member, "begin", token, term, self.entry, 1, self.pages, self.page_bytes)

    def answers(self, asked: Copy, server: str, store: str, member: str) -> Iterator[Copy]:
        """Yield the pages of a range that differ at the standby, then the hash that the range must have.

        Args:
            asked: the standby's hashes of the range.
            server, store, member: of this member, for its messages.

        Raises:
            StorageError: a page cannot be read.
        """
        step = "gone" if asked.snapshot != self.entry or not 1 <= asked.pages <= RANGE_PAGES else "pages"
        answer = Copy(server, store, member, step, asked.token, 0, asked.snapshot, asked.first, asked.pages)
        if step == "gone":
            yield answer
            return
        theirs = bytes(asked.body)
        parts: list[bytes] = []
        size, total = 0, blake2b(digest_size=HASH_BYTES)
        for place, number in enumerate(range(asked.first, min(asked.first + asked.pages, self.pages + 1))):
            page = self.page(number)
            digest = hash_of(page)
            total.update(digest)
            if digest == theirs[place * HASH_BYTES : (place + 1) * HASH_BYTES]:
                continue
            parts += (_NUMBER.pack(number), page)
            size += len(page)
            if size >= MESSAGE_BYTES:
                answer.body, parts, size = b"".join(parts), [], 0
                yield answer
                answer = Copy(server, store, member, step, asked.token, 0, asked.snapshot, asked.first, asked.pages)
        if parts:
            answer.body = b"".join(parts)
            yield answer
        yield Copy(
            server, store, member, "checked", asked.token, 0, asked.snapshot, asked.first, asked.pages,
            body=total.digest(),
        )  # fmt: skip

    def close(self) -> None:
        """Close the transaction, so that the log can start over."""
        with contextlib.suppress(apsw.Error):
            self._db.close()
