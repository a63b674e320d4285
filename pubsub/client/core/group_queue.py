"""The records of a group that are here and that no handler has begun.

Some are claimed, others are only offered. In a keyed group each part has its own queue, in the part's order, and a part
with a record in hand hands out nothing. In a shared group there is one queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pubsub.client.core.group_places import Lane, Places
from pubsub.client.core.message import RunSlice


class Entry:
    """Records of one run that follow each other, all claimed or all offered.

    Attributes:
        piece: the records.
        low, high: the offsets that are told as done with them.
        attempts: begun so far at any member.
    """

    __slots__ = ("attempts", "claimed", "high", "low", "part", "piece")

    def __init__(self, piece: RunSlice, low: int, high: int, part: int | None, attempts: int, *, claimed: bool) -> None:
        self.piece, self.low, self.high, self.part, self.attempts = piece, low, high, part, attempts
        self.claimed = claimed

    @property
    def lane(self) -> Lane:
        return self.piece.run.log, self.part

    @property
    def offset(self) -> int:
        """Offset of its first record."""
        return self.piece.run.offset + self.piece.start

    @property
    def records(self) -> int:
        return self.piece.stop - self.piece.start

    def end(self, number: int) -> int:
        """Return the end of the offsets that are told as done with its first records."""
        return self.high if number == self.records else self.offset + number

    def split(self, inside: Callable[[int], bool]) -> Iterator[Entry]:
        """Yield the parts of it with offsets that pass a test."""
        piece, base = self.piece, self.piece.run.offset
        start = piece.start
        while start < piece.stop:
            if not inside(base + start):
                start += 1
                continue
            stop = start + 1
            while stop < piece.stop and inside(base + stop):
                stop += 1
            low = self.low if start == piece.start else base + start
            high = self.high if stop == piece.stop else base + stop
            yield Entry(
                piece._replace(start=start, stop=stop), low, high, self.part, self.attempts, claimed=self.claimed
            )
            start = stop


class Record(NamedTuple):
    """One record that leaves the queue; its attributes are those of `Entry`."""

    piece: RunSlice
    offset: int
    low: int
    high: int
    part: int | None
    attempts: int
    claimed: bool


class GroupQueue:
    """The records that are here and not begun.

    Attributes:
        records: number of all of them.
        offered: number of those that are only offered.
        blocked: parts with a record in hand.
    """

    def __init__(self) -> None:
        self._parts: dict[int | None, deque[Entry]] = {}
        self._turns: deque[int | None] = deque()
        """Parts with a record, in the order of their turns."""
        self.records = self.offered = 0
        self.blocked: set[int | None] = set()

    def __bool__(self) -> bool:
        return self.records > 0

    def add(self, entry: Entry) -> None:
        """Append records to the queue of their part."""
        queue = self._parts.get(entry.part)
        if queue is None:
            queue = self._parts[entry.part] = deque()
            self._turns.append(entry.part)
        queue.append(entry)
        self._count(entry, 1)

    def _count(self, entry: Entry, sign: int) -> None:
        self.records += sign * entry.records
        if not entry.claimed:
            self.offered += sign * entry.records

    def last(self, part: int | None) -> Entry | None:
        """Return the last records of a part."""
        queue = self._parts.get(part)
        return queue[-1] if queue else None

    def front(self, *, claimed: bool) -> Entry | None:
        """Return the records in front of the next part that may hand one out. `claimed`: only claimed ones."""
        for _ in range(len(self._turns)):
            part = self._turns[0]
            entry = self._parts[part][0]
            if part not in self.blocked and (entry.claimed or not claimed):
                return entry
            self._turns.rotate(-1)
        return None

    def take(self, entry: Entry) -> Record:
        """Remove the first record of an entry that is in front of its part; another part has the next turn."""
        piece, part = entry.piece, entry.part
        queue, offset = self._parts[part], entry.offset
        low, high = entry.low, entry.high if entry.records == 1 else offset + 1
        self.records -= 1
        if not entry.claimed:
            self.offered -= 1
        found = Record(
            piece._replace(stop=piece.start + 1), offset, low, high, part, entry.attempts, entry.claimed
        )  # fmt: skip
        if entry.records == 1:
            queue.popleft()
        else:
            entry.piece, entry.low = piece._replace(start=piece.start + 1), high
        if self._turns[0] == part:
            self._turns.popleft()
        else:
            self._turns.remove(part)
        if queue:
            self._turns.append(part)
        else:
            del self._parts[part]
        return found

    def plan(self, most: int) -> list[tuple[Entry, int]]:
        """Return up to `most` claimed records that may be taken together, as entries and numbers; nothing changes."""
        out: list[tuple[Entry, int]] = []
        for part in self._turns:
            if part in self.blocked:
                continue
            for entry in self._parts[part]:
                if not entry.claimed or not most:
                    break
                number = min(most, entry.records)
                out.append((entry, number))
                most -= number
        return out

    def drop(self, entry: Entry, number: int) -> None:
        """Remove the first records of an entry that is in front of its part."""
        self._count(entry, -1)
        if number < entry.records:
            entry.low, entry.piece = entry.end(number), entry.piece._replace(start=entry.piece.start + number)
            self._count(entry, 1)
            return
        queue = self._parts[entry.part]
        queue.remove(entry)
        if not queue:
            del self._parts[entry.part]
            self._turns.remove(entry.part)

    def entries(self) -> Iterator[Entry]:
        """Yield everything, part by part."""
        for queue in self._parts.values():
            yield from queue

    def has(self, part: int | None) -> bool:
        """Return True if a part has a record here."""
        return part in self._parts

    def replace(self, changed: Callable[[Entry], Iterator[Entry]]) -> None:
        """Put other entries in the place of each entry; its order is kept."""
        before, self._parts, turns = self._parts, {}, self._turns
        self.records = self.offered = 0
        for part, queue in before.items():
            found = deque(new for entry in queue for new in changed(entry))
            if found:
                self._parts[part] = found
                for entry in found:
                    self._count(entry, 1)
        self._turns = deque(part for part in turns if part in self._parts)

    def remove(self, part: int | None) -> list[Entry]:
        """Remove and return the records of a part."""
        queue = self._parts.pop(part, None)
        if queue is None:
            return []
        self._turns.remove(part)
        for entry in queue:
            self._count(entry, -1)
        return list(queue)

    def clear(self) -> list[Entry]:
        """Remove and return everything."""
        found = list(self.entries())
        self._parts.clear()
        self._turns.clear()
        self.records = self.offered = 0
        return found


def inside(places: Places, lane: Lane) -> Callable[[int], bool]:
    """Return a test for offsets of a lane."""
    return lambda offset: places.has(lane, offset)
