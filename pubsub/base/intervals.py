"""Sets of integers kept as sorted half-open ranges.

Received message IDs and offsets arrive nearly in order, so a million numbers are two or three ranges. Membership and
insertion are a binary search. Memory grows with the gaps, not with the numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A set of integers as sorted, disjoint, non-adjacent ranges [low, high).

    Args:
        ranges: pairs (low, high) in any order, overlapping or not; empty ones are ignored.
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in ranges:
            self.add(low, high)

    def add(self, low: int, high: int | None = None) -> bool:
        """Add the range [low, high), or the one number `low`.

        Returns:
            True if any of these numbers was new.
        """
        high = low + 1 if high is None else high
        if low >= high:
            return False
        lows, highs = self._lows, self._highs
        if highs and lows[-1] <= low <= highs[-1]:  # Special case: the last range grows at its end, as usual.
            if high <= highs[-1]:
                return False
            highs[-1] = high
            return True
        first = bisect_left(highs, low)
        last = bisect_right(lows, high)
        if first < last:
            if lows[first] <= low and high <= highs[first]:
                return False
            low, high = min(low, lows[first]), max(high, highs[last - 1])
        lows[first:last] = [low]
        highs[first:last] = [high]
        return True

    def discard(self, low: int, high: int | None = None) -> None:
        """Remove the range [low, high), or the one number `low`."""
        high = low + 1 if high is None else high
        if low >= high:
            return
        lows, highs = self._lows, self._highs
        first = bisect_right(highs, low)
        last = bisect_left(lows, high)
        if first >= last:
            return
        left, right = lows[first], highs[last - 1]
        keep = [(a, b) for a, b in ((left, low), (high, right)) if a < b]
        lows[first:last] = [a for a, _ in keep]
        highs[first:last] = [b for _, b in keep]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._lows, number) - 1
        return index >= 0 and number < self._highs[index]

    def covers(self, low: int, high: int) -> bool:
        """Return True if each number of [low, high), which is not empty, is in the set."""
        index = bisect_right(self._lows, low) - 1
        return index >= 0 and high <= self._highs[index]

    def touching(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the ranges that overlap [low, high) or are next to it, which `add` would join with it."""
        first, last = bisect_left(self._highs, low), bisect_right(self._lows, high)
        return list(zip(self._lows[first:last], self._highs[first:last], strict=True))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._lows, self._highs, strict=True))

    def __len__(self) -> int:
        """Return the number of ranges, which is the cost in memory."""
        return len(self._lows)

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet([{', '.join(f'({a}, {b})' for a, b in self)}])"

    @property
    def end(self) -> int:
        """One above the largest number, or 0 if empty."""
        return self._highs[-1] if self._highs else 0

    def count(self) -> int:
        """Return the number of integers."""
        return sum(self._highs) - sum(self._lows)
