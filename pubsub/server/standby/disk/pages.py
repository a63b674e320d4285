"""A copy of the primary's store, built by pages beside the member's own store.

    server.db  --copied here-->  copy.db  --pages that differ-->  copy.db  --complete-->  copied.db  -->  server.db

The copy proceeds range by range. The member first copies the range from its own store, on its own disk. It then sends
the hashes of these pages, and the primary sends the pages that differ. This has three effects:

* No step takes longer than a range, however large the store is.
* An interrupted copy continues with the pages that are there, whatever they contain.
* A store that is a few loops too far ahead costs only a few pages.

A range counts when it reads back with the hash that the primary names.

The old store stays until the copy is complete and synced. The rename to `copied.db` is the one decisive step: a process
that finds such a file completes the installation before it opens anything. The old write-ahead log must be deleted
before the new file takes the old name. Otherwise SQLite would apply the old log to the new file.

The rule is docs/explanation/failover.md, F10.
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
COPIED: Final = "copied.db"
PIECE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that are copied at a time from the member's own store."""

TRIES_MAX: Final = 3
"""Number of times that the written pages of a range may read back differently before the copy is given up."""

PAGE_BYTES_MAX: Final = 65536
_NUMBER: Final = 4


class PageCopy:
    """A copy under way, at the member that receives it.

    Args:
        directory: of the member.
        begin: the primary's first message.
        own: the member's store, open and not written meanwhile; None if it has no readable store.

    Raises:
        StoreFull, StorageError: the disk is full, or failed.

    Attributes:
        token, snapshot: identify the copy.
        first: the first page of the range to ask for next.
        received_bytes: bytes of pages received so far.
    """

    def __init__(self, directory: Path, begin: Copy, own: apsw.Connection | None) -> None:
        self._directory, self._path, self._own = directory, directory / GROWING, own
        self.token, self.snapshot = begin.token, begin.snapshot
        self._pages, self._page_bytes = begin.pages, begin.page_bytes
        if not (512 <= begin.page_bytes <= PAGE_BYTES_MAX and 1 <= begin.pages < 1 << 32):
            raise StorageError(str(self._path), "the primary names a page size or a page count that no store has")
        self.first = 1
        self.received_bytes = 0
        self._tries = 0
        self._written: dict[int, bytes] = {}  # Hashes of the received pages of this range, taken before the write.
        with failures(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def complete(self) -> bool:
        """True if every range counts."""
        return self.first > self._pages

    def request(self, server: str, store: str, member: str) -> Copy:
        """Return the hashes of the next range. Send them again if no answer arrives.

        Raises:
            StoreFull, StorageError: the disk is full, or failed.
        """
        count = min(RANGE_PAGES, self._pages + 1 - self.first)
        with failures(self._path):
            self._copy_own((self.first - 1 + count) * self._page_bytes)
        body = b"".join(self._hashes(count))
        return Copy(server, store, member, "hashes", self.token, 0, self.snapshot, self.first, count, 0, body)

    def _copy_own(self, end: int) -> None:
        """Copy the member's own store up to an offset, unless the file is that long already."""
        if self._own is None:
            return
        end = min(end, (self._directory / FILE).stat().st_size)
        while (done := os.fstat(self._file).st_size) < end:
            # Read through SQLite: closing a file descriptor of our own would release SQLite's locks on that file.
            try:
                _, piece = self._own.read("main", 0, done, min(PIECE_BYTES, end - done))
            except apsw.Error as error:
                raise translate(error, self._directory / FILE) from None
            self._write(piece, done)

    def take(self, answer: Copy) -> bool:
        """Process the primary's answer about the current range. Any other answer is ignored.

        Returns:
            True if a request is due, for the next range or for this one again.

        Raises:
            StoreFull, StorageError: the disk is full, failed, or does not keep the written pages.
        """
        if (answer.token, answer.snapshot, answer.first) != (self.token, self.snapshot, self.first) or self.complete:
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
        self._tries += not kept  # If all pages were kept, some were lost on the way, as on an unstable link.
        if self._tries >= TRIES_MAX:
            raise StorageError(
                str(self._path), f"does not keep written pages, from page {self.first} on: check the disk"
            )
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
        """Yield the hashes of the pages of the current range, as far as the file has them."""
        for number in range(self.first, self.first + count):
            with failures(self._path):
                page = os.pread(self._file, self._page_bytes, (number - 1) * self._page_bytes)
            if len(page) < self._page_bytes:
                return
            yield hash_of(page)

    def finish(self) -> None:
        """Sync the complete copy, and give it the name with which `install` finds it.

        Raises:
            StorageError: the disk failed.
        """
        assert self.complete
        with failures(self._path):
            os.ftruncate(self._file, self._pages * self._page_bytes)
            os.fsync(self._file)
            self._path.rename(self._directory / COPIED)
            sync_directory(self._directory)
        self.close()

    def close(self) -> None:
        """Close the file. Its pages stay for the next copy."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def install(directory: Path) -> bool:
    """Replace the store by a complete copy, if there is one. Called at every start, before the store is opened.

    Returns:
        True if there was a copy.

    Raises:
        StorageError: the disk failed; the next call continues.
    """
    copied = directory / COPIED
    with failures(copied):
        if not copied.exists():
            return False
        for suffix in ("-wal", "-shm"):
            (directory / f"{FILE}{suffix}").unlink(missing_ok=True)
        sync_directory(directory)
        copied.rename(directory / FILE)
        sync_directory(directory)
    return True
