"""One file of a stream of entries: its format, how it is written, and how it is read after a crash.

    file head: mark, the entry before the first one, position of the file in the stream, CRC-32
    each entry: mark, flags, ID, previous ID, bytes synced before, size, CRC-32 of the bytes, CRC-32 of this; the bytes

The checksums show whether an entry is complete. The previous ID shows whether the entry belongs at its place. After a
power cut the end of a file may contain anything, and any part of the unsynced data may be missing. Each entry therefore
records up to which position the stream was synced when it was written. If an intact entry names a synced position that
cannot be read, the disk has lost confirmed data.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from pubsub.errors import StorageError, StoreFull
from pubsub.protocol.standby import ENTRY_BYTES_MAX, EntryId
from pubsub.server.standby.replication.entries import Entry

_FILE_MARK: Final = b"PPSTRM01"
_FILE: Final = struct.Struct(">8sQQQI")
_MARK: Final = b"PPE1"
_ENTRY: Final = struct.Struct(">4sB3xQQQQQQII")
_OWN: Final = 1
_BATCH: Final = 512
"""Maximum number of buffers in one write call; the operating system accepts 1,024."""
_STEP_BYTES: Final = 64 * 1024
"""One entry's place is remembered for each such number of bytes."""
_READ_BYTES: Final = 256 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Head(NamedTuple):
    """The fields before an entry's bytes.

    Attributes:
        own: True if this member wrote it as primary, before its own commit.
        synced: bytes of the stream that were synced before this entry was written.
        offset: of the entry in its file.
    """

    id: EntryId
    previous: EntryId
    own: bool
    synced: int
    size: int
    checksum: int
    offset: int

    @property
    def end(self) -> int:
        """The offset behind the entry."""
        return self.offset + _ENTRY.size + self.size


class Segment:
    """One file.

    Args:
        path: of the file.
        number: gives the order of the files.
        base: the entry before the first one.
        start: bytes of the stream before this file.

    Attributes:
        size: bytes that count.
        end: the last entry, or `base`.
    """

    def __init__(self, path: Path, number: int, base: EntryId, start: int) -> None:
        self.path, self.number, self.base, self.start = path, number, base, start
        self.size = _FILE.size
        self.end = base
        self._places: list[tuple[EntryId, int]] = [(base, _FILE.size)]
        self.indexed = True
        self._file: int | None = None

    @classmethod
    def create(cls, path: Path, number: int, base: EntryId, start: int) -> Segment:
        """Make a new file.

        Raises:
            StoreFull, StorageError: it cannot be made.
        """
        segment = cls(path, number, base, start)
        head = _FILE.pack(_FILE_MARK, *base, start, 0)[:-4]
        with failures(path):
            segment._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                segment._write([head + crc32(head).to_bytes(4, "big")], 0)
            except OSError:
                segment.close()
                path.unlink(missing_ok=True)  # Otherwise each try on a full disk would leave a file.
                raise
        return segment

    @classmethod
    def found(cls, path: Path, number: int) -> Segment | None:
        """Open an existing file, not indexed yet. Return None if its head cannot be read."""
        with failures(path):
            with path.open("rb") as file:
                head = file.read(_FILE.size)
            if len(head) < _FILE.size:
                return None
            mark, term, entry, start, checksum = _FILE.unpack(head)
            if mark != _FILE_MARK or crc32(head[:-4]) != checksum:
                return None
            segment = cls(path, number, EntryId(term, entry), start)
            segment.indexed = False
            return segment

    def rename(self, number: int, path: Path) -> None:
        """Give the file its final number and path.

        Raises:
            OSError: the disk failed.
        """
        self.path.rename(path)
        self.number, self.path = number, path

    @property
    def position(self) -> int:
        """Bytes of the stream up to the end of this file."""
        return self.start + self.size

    @property
    def file(self) -> int:
        """File descriptor of the file, opened at first use."""
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # Writing

    def append(self, entries: Sequence[Entry], *, own: bool, synced: int) -> None:
        """Write entries at the end: all, or none if the disk is full.

        Raises:
            StoreFull, StorageError: they cannot be written.
        """
        buffers: list[Any] = []
        offset = self.size
        for entry in entries:
            head = _ENTRY.pack(
                _MARK, _OWN if own else 0, *entry.id, *entry.previous, synced, entry.size, entry.checksum, 0
            )[:-4]
            buffers += (head + crc32(head).to_bytes(4, "big"), *entry.parts)
            self._remember(entry.id, offset + _ENTRY.size + entry.size)
            offset += _ENTRY.size + entry.size
        with failures(self.path):
            try:
                self._write(buffers, self.size)
            except OSError:
                self._forget(self.size)
                os.ftruncate(self.file, self.size)
                raise
        self.size, self.end = offset, entries[-1].id if entries else self.end

    def _write(self, buffers: list[Any], offset: int) -> None:
        for first in range(0, len(buffers), _BATCH):
            some = buffers[first : first + _BATCH]
            missing = sum(map(len, some))
            written = os.pwritev(self.file, some, offset)
            offset += written
            if written < missing:  # Write the rest alone. If that fails, its error gives the cause.
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written = os.pwrite(self.file, rest, offset)
                    offset, rest = offset + written, rest[written:]

    def sync(self) -> None:
        """Sync all written data to the disk.

        Raises:
            StorageError: the disk failed. Its contents are unknown.
        """
        try:
            os.fdatasync(self.file)
        except OSError as error:
            raise StorageError(str(self.path), f"cannot be synced: {error.strerror}") from None

    def cut(self, end: EntryId, offset: int) -> None:
        """Drop all data behind the entry `end`, which ends at `offset`.

        Raises:
            StorageError: the disk failed.
        """
        with failures(self.path):
            os.ftruncate(self.file, offset)
        self._forget(offset)
        self.size, self.end = offset, end

    def _remember(self, entry: EntryId, behind: int) -> None:
        if behind - self._places[-1][1] >= _STEP_BYTES:
            self._places.append((entry, behind))

    def _forget(self, offset: int) -> None:
        while self._places[-1][1] > offset:
            self._places.pop()

    # Reading

    def index(self) -> None:
        """Find the end of the file by the heads of its entries. Data behind the last valid head does not count."""
        for head in self.heads(_FILE.size, size=os.fstat(self.file).st_size):
            self.size, self.end = head.end, head.id
            self._remember(head.id, head.end)
        self.indexed = True

    def behind(self, entry: EntryId) -> int | None:
        """Return the offset behind an entry, `base` included; None if the entry is not in this file."""
        place = bisect_right(self._places, entry, key=lambda known: known[0]) - 1
        if place < 0:
            return None
        known, offset = self._places[place]
        if known == entry:
            return offset
        for head in self.heads(offset, known):
            if head.id >= entry:
                return head.end if head.id == entry else None
        return None

    def heads(self, offset: int, previous: EntryId | None = None, size: int | None = None) -> Iterator[Head]:
        """Yield the heads of entries from an offset on, as long as they are valid and follow each other.

        Args:
            offset: start of the first entry.
            previous: the entry that ends at the offset; None for `base`.
            size: bytes to look at; None for those that count.
        """
        before = self.base if previous is None else previous
        limit = self.size if size is None else size
        buffer, begin = b"", offset
        while offset + _ENTRY.size <= limit:
            if not begin <= offset <= begin + len(buffer) - _ENTRY.size:
                buffer, begin = os.pread(self.file, _READ_BYTES, offset), offset
            head = parse(buffer, offset - begin, offset)
            if head is None or head.previous != before or head.end > limit:
                return
            yield head
            before, offset = head.id, head.end

    def entry(self, head: Head) -> Entry | None:
        """Read the entry of a head. Return None if its bytes are damaged."""
        data = os.pread(self.file, head.size, head.end - head.size)
        while len(data) < head.size and (more := os.pread(self.file, head.size, head.end - head.size + len(data))):
            data += more[: head.size - len(data)]
        if len(data) < head.size or crc32(data) != head.checksum:
            return None
        return Entry(head.id, head.previous, head.size, head.checksum, (data,))

    def shows_loss(self, offset: int, position: int, store_end: EntryId) -> bool:
        """Return True if this file shows that entries that this member has confirmed are lost.

        A valid entry from `offset` on shows a loss under three conditions:

        * This member did not write it as primary.
        * The store does not have it yet.
        * When it was written, the stream was synced beyond `position`, where the unreadable data begins.
        """
        size = os.fstat(self.file).st_size
        while offset < size:
            data = os.pread(self.file, _READ_BYTES, offset)
            place = data.find(_MARK)
            while place >= 0 and place + _ENTRY.size <= len(data):
                head = parse(data, place, offset + place)
                if head is not None and head.synced > position and head.id > store_end and not head.own:
                    return True
                place = data.find(_MARK, place + 1)
            offset += max(1, len(data) - _ENTRY.size + 1) if offset + len(data) < size else len(data) or size
        return False


def parse(data: bytes, place: int, offset: int) -> Head | None:
    """Return the head at a place, or None if there is no valid one."""
    if place + _ENTRY.size > len(data):
        return None
    raw = data[place : place + _ENTRY.size]
    mark, flags, term, number, before, last, synced, size, checksum, own_checksum = _ENTRY.unpack(raw)
    if mark != _MARK or crc32(raw[:-4]) != own_checksum or not 0 < size <= ENTRY_BYTES_MAX:
        return None
    return Head(EntryId(term, number), EntryId(before, last), bool(flags & _OWN), synced, size, checksum, offset)


class failures:  # noqa: N801 - reads as a sentence
    """Turns operating system errors about a file into StoreFull or StorageError.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            if error.errno in _FULL:
                raise StoreFull(self._path, "no space is left on the disk") from None
            raise StorageError(self._path, f"cannot be written or read: {error.strerror}") from None


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to the disk.

    Raises:
        OSError: the disk failed.
    """
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
