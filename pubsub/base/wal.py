"""SQLite's write-ahead log, frame by frame, as its documentation of the file format describes it.

SQLite ignores, without an error, all frames after one with a wrong checksum. After a power cut that is right for an
unfinished commit. But a flipped bit in the middle also removes all later commits, and those were answered. Each commit
is synced before the next one begins, so a power cut leaves at most one commit after the last good frame. If there are
more, the log is damaged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_LOCKED_BYTE: Final = 1 << 30
"""SQLite never writes the page with this byte of a file."""


class Frame(NamedTuple):
    """One written page.

    Attributes:
        page: its number.
        pages: the size of the whole file in pages if this frame ends a commit, otherwise 0.
        sound: whether its checksum and all before it are right; True if they were not checked.
    """

    page: int
    pages: int
    sound: bool


def log_of(path: Path) -> Path:
    """Return the path of a database's write-ahead log: next to the file itself if its path is a symbolic link."""
    return Path(f"{os.path.realpath(path)}-wal")


def frames(path: Path, *, checked: bool) -> Iterator[Frame]:
    """Yield the frames since the log was last restarted, in order.

    Older frames follow them, with another salt. A frame with another salt between current ones is damaged.

    Args:
        path: of the log; a missing log has no frames.
        checked: read the frames completely and verify the checksums.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        size = path.stat().st_size
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack(header)
        if magic & ~1 != 0x377F0682 or not 512 <= page_bytes <= 65536:
            return
        words = ">" if magic & 1 else "<"
        sums = _summed(header[:24], (0, 0), words)
        sound = not checked or sums == (first, second)
        foreign = 0
        for place in range(_HEADER.size, size - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
            file.seek(place)
            frame = file.read(_FRAME.size + page_bytes if checked else _FRAME.size)
            page, pages, *own, first, second = _FRAME.unpack_from(frame)
            if own != salts:
                foreign += 1
                continue
            if foreign:
                sound = False
                yield from [Frame(0, 0, sound)] * foreign
                foreign = 0
            if checked and sound:
                sums = _summed(frame[_FRAME.size :], _summed(frame[:8], sums, words), words)
                sound = sums == (first, second)
            yield Frame(page, pages, sound)


def first_page(path: Path) -> bytes:
    """Return the file's first page from the last good commit of the log; empty if no commit has it."""
    written, committed = -1, -1
    for index, frame in enumerate(frames(path, checked=True)):
        if not frame.sound:
            break
        if frame.page == 1:
            written = index
        if frame.pages:
            committed = written
    if committed < 0:
        return b""
    with path.open("rb") as file:
        page_bytes = _HEADER.unpack(file.read(_HEADER.size))[2]
        file.seek(_HEADER.size + committed * (_FRAME.size + page_bytes) + _FRAME.size)
        return file.read(page_bytes)


def begins_damaged(path: Path) -> bool:
    """Return whether the head of the log is damaged; SQLite then ignores the whole log.

    A head of zeros was never synced. SQLite syncs it before it writes anything after it.
    """
    if not path.exists():
        return False
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return False
        if not any(header):
            return any(map(any, iter(lambda: file.read(1 << 20), b"")))
    magic, *_, first, second = _HEADER.unpack(header)
    return magic & ~1 != 0x377F0682 or _summed(header[:24], (0, 0), ">" if magic & 1 else "<") != (first, second)


def missing_pages(size: int, pages: int, page_bytes: int, logged: Iterable[int]) -> int:
    """Return the number of a database's pages that are neither in its file nor in its log; SQLite reads them as zeros.

    Args:
        size: of the file, in bytes.
        pages: the number of pages that it should have.
        page_bytes: size of a page.
        logged: numbers of the pages in the log.
    """
    here, locked = size // page_bytes, _LOCKED_BYTE // page_bytes + 1
    known = {*logged, locked}
    return max(0, pages - here) - sum(here < page <= pages for page in known)


def commits_behind(path: Path, count: int) -> int:
    """Return the number of commits in the log after its first `count` frames."""
    return sum(bool(frame.pages) for index, frame in enumerate(frames(path, checked=False)) if index >= count)


def blank_behind(path: Path, count: int) -> None:
    """Blank the heads of the frames after the first `count`, which are left from failed commits.

    SQLite overwrites them. If the next commit is shorter, the rest of them would look like commits cut off by damage.

    Raises:
        OSError: it could not be done.
    """
    with path.open("r+b") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        _, _, page_bytes, _, *salts, _, _ = _HEADER.unpack(header)
        size = os.fstat(file.fileno()).st_size
        step = _FRAME.size + page_bytes
        for place in range(_HEADER.size + count * step, size - _FRAME.size + 1, step):
            file.seek(place)
            _, _, *own, _, _ = _FRAME.unpack(file.read(_FRAME.size))
            if own == salts:
                file.seek(place)
                file.write(bytes(_FRAME.size))


def _summed(data: bytes, sums: tuple[int, int], words: str) -> tuple[int, int]:
    """Continue SQLite's checksum over more data."""
    first, second = sums
    for one, two in struct.iter_unpack(f"{words}II", data):
        first = first + one + second & 0xFFFFFFFF
        second = second + two + first & 0xFFFFFFFF
    return first, second
