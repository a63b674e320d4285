"""One file of a stream of entries: its format, how it is written, and how it is read after a crash.

    head: mark, the entry that the first one follows, where in the stream the file begins, CRC-32
    each entry: mark, flags, ID, previous ID, bytes synced before, size, CRC-32 of the bytes, CRC-32 of this; the bytes

Whether an entry is whole is said by its checksums, whether it belongs where it stands by the entry that it names as
the one before it. At the end of a file a power cut leaves anything: what was not synced may lack any part. So each
entry says up to where the stream was synced when it was written: a sound entry that says so of a place that cannot be
read shows that the disk lost what it had confirmed.
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
"""Buffers of one call that writes; a system takes 1,024."""
_STEP_BYTES: Final = 64 * 1024
"""One place in so many bytes is remembered."""
_READ_BYTES: Final = 256 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Head(NamedTuple):
    """What stands before an entry's bytes.

    Attributes:
        own: written by this member as primary, before its own commit.
        synced: bytes of the stream that were synced before this was written.
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
        """The offset behind it."""
        return self.offset + _ENTRY.size + self.size


class Segment:
    """One file.

    Args:
        path: of the file.
        number: files are in this order.
        base: the entry that its first one follows.
        start: bytes of the stream before this file's.

    Attributes:
        size: bytes that count.
        end: its last entry, or `base`.
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
        """A new file.

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
                path.unlink(missing_ok=True)  # A disk that stays full would get one more with each try.
                raise
        return segment

    @classmethod
    def found(cls, path: Path, number: int) -> Segment | None:
        """A file that is there, not indexed yet; None where its head cannot be read."""
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
        """Be the file of this number from now on.

        Raises:
            OSError: the disk failed.
        """
        self.path.rename(path)
        self.number, self.path = number, path

    @property
    def position(self) -> int:
        """Bytes of the stream up to its end."""
        return self.start + self.size

    @property
    def file(self) -> int:
        """The open file."""
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # Writing

    def append(self, entries: Sequence[Entry], *, own: bool, synced: int) -> None:
        """Write entries at the end; none of them where the disk is full.

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
            if written < missing:  # The rest one by one: a second try says why.
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written = os.pwrite(self.file, rest, offset)
                    offset, rest = offset + written, rest[written:]

    def sync(self) -> None:
        """Have all that was written on the disk.

        Raises:
            StorageError: the disk failed: what it has is not known.
        """
        try:
            os.fdatasync(self.file)
        except OSError as error:
            raise StorageError(str(self.path), f"cannot be synced: {error.strerror}") from None

    def cut(self, end: EntryId, offset: int) -> None:
        """Drop all from an offset on, where the entry `end` ends.

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
        """Find its end by the heads of its entries; what is not sound behind it counts no more."""
        for head in self.heads(_FILE.size, size=os.fstat(self.file).st_size):
            self.size, self.end = head.end, head.id
            self._remember(head.id, head.end)
        self.indexed = True

    def behind(self, entry: EntryId) -> int | None:
        """The offset behind an entry, `base` included; None where it is not in this file."""
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
        """The heads of the entries from an offset on, as far as they are sound and follow each other.

        Args:
            previous: the entry that ends at the offset; None: `base`.
            size: bytes to look at; None: those that count.
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
        """The entry behind a head; None where its bytes are not what was written."""
        data = os.pread(self.file, head.size, head.end - head.size)
        while len(data) < head.size and (more := os.pread(self.file, head.size, head.end - head.size + len(data))):
            data += more[: head.size - len(data)]
        if len(data) < head.size or crc32(data) != head.checksum:
            return None
        return Entry(head.id, head.previous, head.size, head.checksum, (data,))

    def shows_loss(self, offset: int, position: int, store_end: EntryId) -> bool:
        """Whether entries that this member has confirmed are lost.

        A sound one from an offset on shows it, where it was written when the stream was synced beyond a position that
        cannot be read, and the store does not have it yet.
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
    """The head that stands at a place; None where none does."""
    if place + _ENTRY.size > len(data):
        return None
    raw = data[place : place + _ENTRY.size]
    mark, flags, term, number, before, last, synced, size, checksum, own_checksum = _ENTRY.unpack(raw)
    if mark != _MARK or crc32(raw[:-4]) != own_checksum or not 0 < size <= ENTRY_BYTES_MAX:
        return None
    return Head(EntryId(term, number), EntryId(before, last), bool(flags & _OWN), synced, size, checksum, offset)


class failures:  # noqa: N801 - reads as a sentence
    """What goes wrong with a file, as our errors.

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
    """Have the names in a directory on the disk.

    Raises:
        OSError: the disk failed.
    """
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
