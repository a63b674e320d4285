"""The stream: a member's most recent entries, one chain in a few files.

The standby syncs its appended entries before it acknowledges them; the primary only appends. Both keep up to
`standby_stream_bytes_max`. After a short absence a member therefore receives the entries that it lacks from the current
primary, and needs no copy. The oldest files are removed first. Pinned entries, which must follow a copy under way, stay
until the stream has twice that size.

At the start the stream is fitted to the store. The entries behind the store's last entry are of two kinds. This member
acknowledged some as a standby, and keeps them. It wrote others as primary and did not commit them. These are dropped,
because an entry that was taken back must not return. If the stream does not reach the store's last entry, it starts
over there.

The rule is docs/explanation/failover.md, F5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pubsub.errors import StorageError, StoreDamaged, StoreFull
from pubsub.protocol.standby import ROOT, EntryId, format_entry
from pubsub.server.standby.disk.segment import Segment, failures, sync_directory
from pubsub.server.standby.replication.entries import Entry

STREAM_BYTES_MAX: Final = 1 << 30
"""Default maximum bytes of entries to keep."""

RECENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of the newest entries that are in memory too, so that a standby that keeps up needs no read of the
disk."""

FILES: Final = 16
"""Number of files in the stream; one is removed at a time."""

_SUFFIX: Final = ".entries"
_NEXT: Final = "next"
"""Name of the file that `prepare` makes, until `reset` renames it."""


class _Recent:
    """The newest entries, in memory, by the previous entry of each; oldest first."""

    def __init__(self) -> None:
        self.entries: dict[EntryId, Entry] = {}
        self._bytes = 0

    def keep(self, entry: Entry) -> None:
        """Add the newest entry, and drop the oldest ones if there are too many bytes."""
        self.entries[entry.previous] = entry
        self._bytes += entry.size
        while self._bytes > RECENT_BYTES_MAX and len(self.entries) > 1:
            self._bytes -= self.entries.pop(next(iter(self.entries))).size

    def cut(self, end: EntryId) -> None:
        while self.entries and next(reversed(self.entries.values())).id > end:
            self._bytes -= self.entries.popitem()[1].size


class Stream:
    """The stream of one member.

    Args:
        directory: made if it does not exist.
        store_end: the last entry of the store.
        bytes_max: maximum bytes to keep.
        forget: start over if the disk lost confirmed entries.

    Raises:
        StoreDamaged: entries that this member acknowledged cannot be read any more. It must not become primary before
            it has all data from the other member.
        StorageError: the files cannot be used.

    Attributes:
        staged: the entries that were behind the store's last one at the start.
    """

    def __init__(
        self, directory: Path, store_end: EntryId, *, bytes_max: int = STREAM_BYTES_MAX, forget: bool = False
    ) -> None:
        self._directory = directory
        self._bytes_max, self._file_bytes = bytes_max, max(1, bytes_max // FILES)
        self._recent = _Recent()
        self._pinned: EntryId | None = None
        self._store_end = store_end
        self._synced = 0  # Bytes of the stream that are on the disk.
        self._unsynced: list[Segment] = []  # Older files that are not on the disk, or without their names there.
        self._segments: list[Segment] = []
        self._next: Segment | None = None
        self.staged: list[Entry] = []
        with contextlib.ExitStack() as opened, failures(directory):
            opened.callback(self.close)
            directory.mkdir(parents=True, exist_ok=True)
            self._open(store_end, forget)
            opened.pop_all()

    # Opening

    def _open(self, store_end: EntryId, forget: bool) -> None:
        paths = sorted(self._directory.glob(f"*{_SUFFIX}"))
        found = [Segment.found(path, int(path.name.removesuffix(_SUFFIX))) for path in paths]
        self._number = found_number(paths)
        valid = [segment for segment in found if segment is not None]
        # A file without a valid head was never finished, or its disk lost the head and confirmed entries behind it.
        headless = [Segment(path, 0, ROOT, 0) for path, one in zip(paths, found, strict=True) if one is None]
        first = next((place for place in reversed(range(len(valid))) if valid[place].base <= store_end), -1)
        if first < 0:
            _see_loss([*headless, *valid], 0, store_end, forget)
        if first < 0 or not self._fit(valid[: first + 1], valid[first + 1 :], headless, store_end, forget):
            for segment in valid:
                self._remove(segment)
            self._segments, self.staged = [], []
            self._begin(store_end)
        for segment in headless:
            self._remove(segment)
        self._unsynced = list(self._segments[:-1])
        self.sync()
        sync_directory(self._directory)
        for entry in self.staged:
            self._recent.keep(entry)

    def _fit(
        self, older: list[Segment], newer: list[Segment], headless: list[Segment], store_end: EntryId, forget: bool
    ) -> bool:
        """Take over the files with the store's last entry and the entries behind it. Return False if there are none."""
        self._segments = older
        newest = older[-1]
        newest.index()
        while newer and newer[0].base == newest.end:
            newest = newer.pop(0)
            newest.index()
            self._segments.append(newest)
        lost = newest.shows_loss(newest.size, newest.position, store_end)
        if lost and not forget:
            raise StoreDamaged(str(newest.path), f"damaged behind entry {format_entry(newest.end)}")
        further = [*headless, *(segment for segment in newer if segment.start > newest.position)]
        lost = _see_loss(further, newest.position, store_end, forget) or lost
        behind = next((one for one in reversed(self._segments) if one.behind(store_end) is not None), None)
        for segment in newer:
            self._remove(segment)
        newest.cut(newest.end, newest.size)
        if behind is None or lost:
            return False
        self._stage(self._segments.index(behind), store_end, forget)
        return True

    def _stage(self, place: int, store_end: EntryId, forget: bool) -> None:
        """Read the entries behind the store's last one, up to the first that this member wrote as primary."""
        end = store_end
        for segment in self._segments[place:]:
            offset = segment.behind(end)
            if offset is None:
                continue
            for head in segment.heads(offset, end):
                entry = None if head.own else segment.entry(head)
                if entry is None and not head.own and not forget and _is_synced(self._segments, segment, head.end):
                    raise StoreDamaged(str(segment.path), f"damaged at entry {format_entry(head.id)}")
                if entry is None:
                    self.cut(end)
                    return
                self.staged.append(entry)
                end = head.id

    def _begin(self, base: EntryId) -> None:
        self._number += 1
        self._segments.append(Segment.create(self._path(), self._number, base, self._start()))

    def _path(self) -> Path:
        return self._directory / f"{self._number:012d}{_SUFFIX}"

    def _start(self) -> int:
        return self.position if self._segments else 0

    def _remove(self, segment: Segment) -> None:
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        segment.close()
        with failures(segment.path):
            segment.path.unlink(missing_ok=True)

    # Writing

    @property
    def end(self) -> EntryId:
        """The last entry."""
        return self._segments[-1].end

    @property
    def position(self) -> int:
        """Bytes of the stream since it began, including removed files."""
        return self._segments[-1].position

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return self.position - self._segments[0].start

    def append(self, entries: Sequence[Entry], *, own: bool) -> None:
        """Append entries that follow the last one: all of them, or none if the disk is full of other data.

        Args:
            entries: in order.
            own: True if this member made them as primary, before its own commit.

        Raises:
            StoreFull, StorageError: they cannot be written, or do not follow.
        """
        begun = self.end
        if entries and entries[0].previous != begun:
            reason = f"entry {format_entry(entries[0].id)} does not follow {format_entry(begun)}"
            raise StorageError(str(self._directory), reason)
        if own:
            self._store_end = begun  # A primary's loop begins when the one before it is in the store.
        while True:
            try:
                with failures(self._directory):
                    for entry in entries:
                        self._make_room()
                        self._segments[-1].append([entry], own=own, synced=self._synced)
                        self._recent.keep(entry)
                break
            except StorageError as error:
                with contextlib.suppress(StorageError):
                    self.cut(begun)
                if not (isinstance(error, StoreFull) and self.end == begun and self._drop_oldest()):
                    raise
        while self.size > self._bytes_max and self._drop_oldest():
            continue

    def _make_room(self) -> None:
        newest = self._segments[-1]
        if newest.size >= self._file_bytes:
            self._begin(newest.end)
            self._unsynced.append(newest)

    def sync(self) -> EntryId:
        """Sync all appended entries to the disk, and return the last one.

        Raises:
            StorageError: the disk failed. Its contents are unknown, and this member may acknowledge nothing more.
        """
        for segment in (*self._unsynced, self._segments[-1]):
            segment.sync()
        if self._unsynced:
            with failures(self._directory):
                sync_directory(self._directory)
            self._unsynced.clear()
        self._synced = self.position
        return self.end

    def cut(self, end: EntryId) -> None:
        """Drop all entries behind one: they were taken back.

        Raises:
            StorageError: the disk failed, or the entry is not in the stream.
        """
        self._recent.cut(end)
        with failures(self._directory):
            while len(self._segments) > 1 and self._segments[-1].base > end:
                self._remove(self._segments.pop())
            newest = self._segments[-1]
            offset = newest.behind(end)
            if offset is None:
                raise StorageError(str(newest.path), f"entry {format_entry(end)} is not in the stream")
            if offset < newest.size:
                newest.cut(end, offset)
        self._synced = min(self._synced, self.position)

    def prepare(self, base: EntryId) -> None:
        """Make the file for a `reset` to the same entry, so that the `reset` needs no space.

        Raises:
            StoreFull, StorageError: it cannot be written; nothing has changed.
        """
        self._unprepare()
        with failures(self._directory):
            self._next = Segment.create(self._directory / _NEXT, self._number + 1, base, self._start())
            self._next.sync()

    def _unprepare(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None

    def reset(self, base: EntryId) -> None:
        """Start over: the store is now a copy that ends with this entry.

        Raises:
            StoreFull, StorageError: the files cannot be written. StoreFull is possible only without `prepare`.
        """
        if self._next is None or (self._next.base, self._next.start) != (base, self._start()):
            self.prepare(base)
        old, self._recent = list(self._segments), _Recent()
        self._store_end = base
        with failures(self._directory):
            assert self._next is not None
            self._number += 1
            self._next.rename(self._number, self._path())
            self._segments.append(self._next)
            self._next = None
            self.sync()
            sync_directory(self._directory)
            for segment in old:
                self._remove(segment)
            self._segments = self._segments[-1:]

    def pin(self, entry: EntryId | None) -> None:
        """Keep the entries behind this one while the stream is below twice its maximum size. None ends this."""
        self._pinned = entry

    def applied(self, entry: EntryId) -> None:
        """Record the last entry of a standby's store. Only the other member may still need the entries up to it."""
        self._store_end = entry

    def _drop_oldest(self) -> bool:
        """Remove the oldest file. Return False if it is the only one, pinned, or has entries that the store lacks."""
        second = self._segments[1].base if len(self._segments) > 1 else None
        if second is None or second > self._store_end:
            return False
        if self._pinned is not None and second > self._pinned and self.size <= 2 * self._bytes_max:
            return False
        self._remove(self._segments.pop(0))
        return True

    # Reading

    def holds(self, entry: EntryId) -> bool:
        """Return True if an entry is in this chain and all entries behind it are here."""
        return entry == self.end or entry in self._recent.entries or self._found(entry) is not None

    def _found(self, entry: EntryId) -> tuple[int, int] | None:
        """Return the index of the file with an entry, and the offset behind that entry."""
        for place in reversed(range(len(self._segments))):
            segment = self._segments[place]
            if segment.base > entry:
                continue
            if not self._is_indexed(place):
                return None
            offset = segment.behind(entry)
            return None if offset is None else (place, offset)
        return None

    def _is_indexed(self, place: int) -> bool:
        """Index older files, newest first. If a file does not lead to the next one, remove it and all older ones."""
        for older in reversed(range(place, len(self._segments) - 1)):
            segment = self._segments[older]
            if segment.indexed:
                continue
            segment.index()
            if segment.end != self._segments[older + 1].base:
                self._forget_up_to(older)
                return False
        return True

    def _forget_up_to(self, place: int) -> None:
        for segment in self._segments[: place + 1]:
            self._remove(segment)
        del self._segments[: place + 1]

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        """Return entries that follow `after`: the first in any case, more up to `bytes_max`; none if it is not here.

        Raises:
            StorageError: the disk failed.
        """
        out: list[Entry] = []
        size = 0
        while (entry := self._recent.entries.get(after)) is not None and len(out) < entries_max:
            size += entry.size
            if out and size > bytes_max:
                break
            out.append(entry)
            after = entry.id
        with failures(self._directory):
            return out or self._read(after, bytes_max, entries_max)

    def _read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        found = self._found(after)
        if found is None:
            return []
        place, offset = found
        if offset == self._segments[place].size and place + 1 < len(self._segments):
            place, offset = place + 1, self._segments[place + 1].behind(after) or 0
        out: list[Entry] = []
        size = 0
        for head in self._segments[place].heads(offset, after):
            size += head.size
            if out and (size > bytes_max or len(out) == entries_max):
                break
            entry = self._segments[place].entry(head)
            if entry is None:  # It is damaged: a standby that lacks it needs a copy.
                self._lose(place)
                break
            out.append(entry)
        return out

    def _lose(self, place: int) -> None:
        """Remove a damaged file and all older ones. Only the files behind it remain."""
        if place == len(self._segments) - 1:
            self._begin(self.end)
        self._forget_up_to(place)

    def close(self) -> None:
        self._unprepare()
        for segment in self._segments:
            segment.close()


def _see_loss(files: Sequence[Segment], position: int, store_end: EntryId, forget: bool) -> bool:
    """Return True if unread files show that confirmed entries behind a position of the stream are lost.

    Raises:
        StoreDamaged: they are lost, and `forget` is False.
    """
    lost = next((one for one in files if one.shows_loss(0, position, store_end)), None)
    if lost is not None and not forget:
        raise StoreDamaged(str(lost.path), f"damaged behind entry {format_entry(store_end)}")
    return lost is not None


def _is_synced(segments: Sequence[Segment], segment: Segment, offset: int) -> bool:
    """Return True if later entries show that the stream was synced up to this offset of a file."""
    later = segments[segments.index(segment) + 1 :]
    position = segment.start + offset - 1
    first = segments[0].base
    return segment.shows_loss(offset, position, first) or any(one.shows_loss(0, position, first) for one in later)


def found_number(paths: Sequence[Path]) -> int:
    """Return the highest number of these files; 0 for none."""
    return max((int(path.name.removesuffix(_SUFFIX)) for path in paths), default=0)
