"""Sets of records of a consumer group, as ranges of offsets by log and part (docs/explanation/groups.md).

In a keyed group a range has the records of one part alone, so each part of a log has ranges of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pubsub.base.intervals import IntervalSet
from pubsub.protocol.group_bodies import Range

Lane = tuple[str, int | None]
"""A log, and in a keyed group a part."""


class Places:
    """A set of records.

    Args:
        ranges: its first members.
    """

    __slots__ = ("_lanes",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._lanes: dict[Lane, IntervalSet] = {}
        for log, low, high, part in ranges:
            self.add((log, part), low, high)

    def add(self, lane: Lane, low: int, high: int) -> None:
        """Add the offsets [low, high) of a lane."""
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = IntervalSet()
        found.add(low, high)

    def discard(self, lane: Lane, low: int, high: int) -> None:
        """Remove the offsets [low, high) of a lane."""
        found = self._lanes.get(lane)
        if found is not None:
            found.discard(low, high)
            if not found:
                del self._lanes[lane]

    def update(self, ranges: Iterable[Range]) -> None:
        """Add ranges."""
        for log, low, high, part in ranges:
            self.add((log, part), low, high)

    def remove(self, ranges: Iterable[Range]) -> None:
        """Remove ranges."""
        for log, low, high, part in ranges:
            self.discard((log, part), low, high)

    def has(self, lane: Lane, offset: int) -> bool:
        """Return True if a record is in the set."""
        found = self._lanes.get(lane)
        return found is not None and offset in found

    def covers(self, lane: Lane, low: int, high: int) -> bool:
        """Return True if all of [low, high) is in the set."""
        found = self._lanes.get(lane)
        return found is not None and found.covers(low, high)

    def joined(self, lane: Lane, low: int, high: int) -> tuple[int, int, tuple[int, ...]]:
        """Return the range that `add` of [low, high) makes; nothing changes.

        Returns:
            The joined range, and the starts of the earlier ranges that it replaces, but its own.
        """
        found = self._lanes.get(lane)
        touching = found.touching(low, high) if found is not None else ()
        if not touching:
            return low, high, ()
        if len(touching) == 1:  # Special case: a range grows, as usual.
            first, last = touching[0]
            return min(low, first), max(high, last), () if first <= low else (first,)
        first, last = min(low, touching[0][0]), max(high, touching[-1][1])
        return first, last, tuple(start for start, _ in touching if start != first)

    def of(self, lane: Lane) -> list[tuple[int, int]]:
        """Return the ranges of a lane."""
        return list(self._lanes.get(lane, ()))

    def lanes(self) -> list[Lane]:
        """Return the lanes with a member, in order."""
        return sorted(self._lanes, key=_order)

    def records(self) -> int:
        """Return the number of offsets."""
        return sum(found.count() for found in self._lanes.values())

    def clear(self) -> None:
        """Remove everything."""
        self._lanes.clear()

    def __iter__(self) -> Iterator[Range]:
        for lane in self.lanes() if len(self._lanes) > 1 else tuple(self._lanes):
            for low, high in self._lanes[lane]:
                yield Range(lane[0], low, high, lane[1])

    def __len__(self) -> int:
        """Return the number of ranges."""
        return sum(map(len, self._lanes.values()))

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Places({list(self)})"


def left_of(one: Range, *others: Places) -> list[tuple[int, int]]:
    """Return the offsets of a range that are in none of the sets, as ranges."""
    left = IntervalSet([(one.low, one.high)])
    lane = one.log, one.part
    for other in others:
        for low, high in other.of(lane):
            if low < one.high and high > one.low:
                left.discard(low, high)
    return list(left)


def _order(lane: Lane) -> tuple[str, int]:
    return lane[0], -1 if lane[1] is None else lane[1]
