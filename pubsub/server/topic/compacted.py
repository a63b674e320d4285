"""The parts of a log from which compaction has removed records, so that a missing row is known to be no damage.

A part counts the records that are left in it. Neighbouring parts become one as long as few records are left in both, so
their number depends on the records that are left, not on those that went.

The rule is docs/explanation/compaction.md, KL5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pubsub.server.topic.spans import Number

KEPT_MAX: Final = 10_000
"""Records left in a part above which it does not grow into its neighbour."""


class Thinned(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The offsets [low, high) of a log, from which records were removed.

    Attributes:
        kept: records that are left; None after trimming cut the part, because the rest was not counted.
        freed: bytes of the batches that became less.
    """

    low: Number
    high: Number
    kept: Number | None = 0
    freed: Number = 0


Parts = tuple[Thinned, ...]
"""The parts of one log, in order."""


def add(
    parts: Parts, low: int, high: int, freed: int = 0, is_complete: Callable[[int, int], bool] = lambda low, high: True
) -> Parts:
    """Return the parts after all records in [low, high) went, which were there before.

    Args:
        freed: bytes that went with them.
        is_complete: returns True if no row is missing between two offsets. Parts do not join over a missing row,
            because it would no longer be known as damage.
    """
    out: list[Thinned] = []
    rest = list(reversed(parts))
    while rest and rest[-1].high < low:
        out.append(rest.pop())
    kept: int | None = 0
    removed = high - low
    while rest and rest[-1].low <= high:
        one = rest.pop()
        # What is outside of the earlier part was complete.
        low, high, covered = min(low, one.low), max(high, one.high), one.high - one.low
        kept = None if kept is None or one.kept is None else kept + one.kept - covered
        freed += one.freed
    grown = Thinned(low, high, None if kept is None else kept + high - low - removed, freed)
    if out and _is_small(out[-1], grown) and is_complete(out[-1].high, low):
        grown = _joined(out.pop(), grown)
    if rest and _is_small(grown, rest[-1]) and is_complete(high, rest[-1].low):
        grown = _joined(grown, rest.pop())
    return (*out, grown, *reversed(rest))


def _between(one: Thinned, next_one: Thinned) -> int:
    return next_one.low - one.high


def _is_small(one: Thinned, following: Thinned) -> bool:
    left = (one.kept or 0) + (following.kept or 0) + _between(one, following)
    return left <= KEPT_MAX


def _joined(one: Thinned, following: Thinned) -> Thinned:
    kept = None
    if one.kept is not None and following.kept is not None:
        kept = one.kept + following.kept + _between(one, following)
    return Thinned(one.low, following.high, kept, one.freed + following.freed)


def trimmed(parts: Parts, low: int) -> Parts:
    """Return the parts after all offsets below `low` went."""
    return tuple(
        one if one.low >= low else Thinned(low, one.high, one.kept if one.kept == 0 else None)
        for one in parts
        if one.high > low
    )


def outside(parts: Parts, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of [low, high) that lie in no part: rows that are missing there are damage."""
    for one in parts:
        if low >= high or one.low >= high:
            break
        if one.high > low:
            if one.low > low:
                yield low, one.low
            low = one.high
    if low < high:
        yield low, high


def removed(parts: Sequence[Thinned]) -> int:
    """Return the number of records that went from these parts, as far as it is known."""
    return sum(one.high - one.low - one.kept for one in parts if one.kept is not None)


def within(parts: Parts, low: int, high: int) -> tuple[Parts, bool]:
    """Return the parts that lie in [low, high), and True if the number of records that went there is known."""
    touched = [one for one in parts if one.low < high and one.high > low]
    inside = tuple(one for one in touched if low <= one.low and one.high <= high)
    return inside, len(inside) == len(touched) and all(one.kept is not None for one in inside)


def count_left(parts: Parts, left: list[int], offset: int, count: int) -> None:
    """Add the records of a batch to the number of records found in each part."""
    index = bisect_right(parts, offset, key=lambda one: one.high)
    while index < len(parts) and parts[index].low < offset + count:
        left[index] += min(parts[index].high, offset + count) - max(parts[index].low, offset)
        index += 1


def miscounted(log: str, parts: Parts, left: Sequence[int]) -> Iterator[str]:
    """Yield a sentence for each part of a log in which another number of records was found than is left in it."""
    for one, found in zip(parts, left, strict=True):
        if one.kept is not None and found != one.kept:
            records = f"records {log}.{one.low} to {log}.{one.high - 1}"
            yield f"of {records}, compaction left {one.kept:,}, and {found:,} are there"
