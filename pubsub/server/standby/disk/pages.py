"""A copy of the primary's store, built by pages beside the member's own.

    server.db  --copied here-->  copy.db  --pages that differ-->  copy.db  --whole-->  copied.db  -->  server.db

Range by range, what the member has is copied on its own disk and then made equal: it tells its hashes, and is sent what
is otherwise. So no step takes longer than a range, however large the store is; an interrupted copy goes on with what is
there, whatever that is; and a store that ran a few loops too far costs a few pages. A range counts when it reads back
as what the primary says is to be there.

The old store serves until the copy is whole and synced. That it has its name `copied.db` is the one step: whoever
finds such a file finishes what was begun, before it opens anything. The old write-ahead log must be gone before the new
file has the old one's name, or SQLite would carry it out on that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import translate
from pubsub.errors import StorageError
from pubsub.protocol.standby import Copy
from pubsub.server.standby.disk.segment import failures, sync_directory
from pubsub.server.standby.disk.snapshot import HASH_BYTES, RANGE_PAGES, hash_of
from pubsub.server.storage.schema import FILE

GROWING: Final = "copy.db"
WHOLE: Final = "copied.db"
PIECE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that are copied on the member's own disk at a time."""

TRIES_MAX: Final = 3
"""How often what was written of a range may read back otherwise before the copy is given up."""

PAGE_BYTES_MAX: Final = 65536
_NUMBER: Final = 4


class PageCopy:
    """A copy under way, at the member that gets it.

    Args:
        directory: the member's.
        begin: what the primary began with.
        own: the member's store, which is open and not written meanwhile; None: it has none that can be read.

    Raises:
        StoreFull, StorageError: the disk is full, or failed.

    Attributes:
        token, snapshot: which copy.
        first: the first page of the range that is asked for next.
        received_bytes: of pages, so far.
    """

    def __init__(self, directory: Path, begin: Copy, own: apsw.Connection | None) -> None:
        self._directory, self._path, self._own = directory, directory / GROWING, own
        self.token, self.snapshot = begin.token, begin.snapshot
        self._pages, self._page_bytes = begin.pages, begin.page_bytes
        if not (512 <= begin.page_bytes <= PAGE_BYTES_MAX and 1 <= begin.pages < 1 << 32):
            raise StorageError(str(self._path), "pages that no store has")
        self.first = 1
        self.received_bytes = 0
        self._tries = 0
        self._written: dict[int, bytes] = {}  # Of this range: hashes of the pages that came, as they came.
        with failures(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def whole(self) -> bool:
        """Whether every range is what it is to be."""
        return self.first > self._pages

    def request(self, server: str, store: str, member: str) -> Copy:
        """The hashes of the next range; to be sent again where no answer comes.

        Raises:
            StoreFull, StorageError: the disk is full, or failed.
        """
        count = min(RANGE_PAGES, self._pages + 1 - self.first)
        with failures(self._path):
            self._copy_own((self.first - 1 + count) * self._page_bytes)
        body = b"".join(self._hashes(count))
        return Copy(server, store, member, "hashes", self.token, 0, self.snapshot, self.first, count, 0, body)

    def _copy_own(self, end: int) -> None:
        """Copy what the member has, up to an offset, unless that much is there already."""
        if self._own is None:
            return
        end = min(end, (self._directory / FILE).stat().st_size)
        while (done := os.fstat(self._file).st_size) < end:
            # Not by a file of our own: to close one would release SQLite's locks on that file.
            try:
                _, piece = self._own.read("main", 0, done, min(PIECE_BYTES, end - done))
            except apsw.Error as error:
                raise translate(error, self._directory / FILE) from None
            self._write(piece, done)

    def take(self, answer: Copy) -> bool:
        """Take what the primary says of the range that was asked for; anything else is ignored.

        Returns:
            Whether the next range is to be asked for, or this one again.

        Raises:
            StoreFull, StorageError: the disk is full, or failed; or it does not keep what is written.
        """
        if (answer.token, answer.snapshot, answer.first) != (self.token, self.snapshot, self.first) or self.whole:
            return False
        count = min(RANGE_PAGES, self._pages + 1 - self.first)
        if answer.step == "pages":
            self._take_pages(memoryview(answer.body), count)
            return False
        if answer.step != "checked":
            return False
        hashes = dict(enumerate(self._hashes(count), self.first))
        found = blake2b(b"".join(hashes.values()), digest_size=HASH_BYTES)
        kept = all(hashes.get(number) == digest for number, digest in self._written.items())
        self._written.clear()
        if found.digest() == bytes(answer.body):
            self.first, self._tries = self.first + count, 0
            return True
        self._tries += not kept  # Else pages were lost on the way, as where a link comes and goes.
        if self._tries >= TRIES_MAX:
            raise StorageError(str(self._path), f"does not keep what is written, at page {self.first} or behind it")
        return True

    def _take_pages(self, body: memoryview, count: int) -> None:
        step = _NUMBER + self._page_bytes
        for place in range(0, len(body) - step + 1, step):
            number = int.from_bytes(body[place : place + _NUMBER], "big")
            if self.first <= number < self.first + count:
                page = body[place + _NUMBER : place + step]
                self._written[number] = hash_of(page)
                with failures(self._path):
                    self._write(page, (number - 1) * self._page_bytes)
                self.received_bytes += self._page_bytes

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, offset)
            offset, rest = offset + written, rest[written:]

    def _hashes(self, count: int) -> Iterator[bytes]:
        """Of the pages of the next range, as far as they are there."""
        for number in range(self.first, self.first + count):
            with failures(self._path):
                page = os.pread(self._file, self._page_bytes, (number - 1) * self._page_bytes)
            if len(page) < self._page_bytes:
                return
            yield hash_of(page)

    def finish(self) -> None:
        """All is there: sync it, and give it the name by which it takes the store's place, `install`.

        Raises:
            StorageError: the disk failed.
        """
        assert self.whole
        with failures(self._path):
            os.ftruncate(self._file, self._pages * self._page_bytes)
            os.fsync(self._file)
            self._path.rename(self._directory / WHOLE)
            sync_directory(self._directory)
        self.close()

    def close(self) -> None:
        """Close the file; what is there stays for the next copy."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def install(directory: Path) -> bool:
    """Put a whole copy in the store's place, if there is one; to be called before the store is opened, at every start.

    Returns:
        Whether there was one.

    Raises:
        StorageError: the disk failed; the next call goes on.
    """
    copied = directory / WHOLE
    with failures(copied):
        if not copied.exists():
            return False
        for suffix in ("-wal", "-shm"):
            (directory / f"{FILE}{suffix}").unlink(missing_ok=True)
        sync_directory(directory)
        copied.rename(directory / FILE)
        sync_directory(directory)
    return True
