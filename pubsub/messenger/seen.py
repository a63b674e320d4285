"""Remembers which messages of a peer were received before (docs/messenger.md, *Message IDs*).

A message ID has 63 bits: 31 random bits for each Messenger, then a count of its messages to this peer (32 bits). So
the IDs of one Messenger are dense, and a million of them need one range. The random bits tell a Messenger that starts
again at the same address from a repeat. An explicit complement, as in NoisePage's document, would let one forged ID of
2^63 fill the memory; a range costs nothing. An ID that jumps too far is refused, because accepting it would make all
genuine later messages look old.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pubsub.base.intervals import IntervalSet
from pubsub.messenger.limits import (
    SEEN_INSTANCES_MAX,
    SEEN_JUMP_MAX,
    SEEN_RANGES_MAX,
    SEEN_SHARE,
    SEEN_TOTAL_MAX,
)

COUNT_BITS: Final = 32
INSTANCE_BITS: Final = 31
_COUNT_MASK: Final = (1 << COUNT_BITS) - 1


class Sighting(Enum):
    """The result for a message ID."""

    FIRST = 1
    REPEAT = 2
    REFUSED = 3


class Ranges:
    """Number of ranges of all peers of a Messenger together."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Seen:
    """The message IDs received from one peer.

    Args:
        ranges: counter that all peers share.
    """

    __slots__ = ("_counts", "_floor", "_instance", "_others", "_ranges")

    def __init__(self, ranges: Ranges | None = None) -> None:
        self._ranges = Ranges() if ranges is None else ranges
        self._instance = -1
        self._counts = IntervalSet()
        self._floor = 0
        self._others: dict[int, tuple[IntervalSet, int]] = {}

    def see(self, message_id: int) -> Sighting:
        """Record an ID.

        Returns:
            FIRST for a new ID, REPEAT for a known one. REFUSED if the ID jumps by more than SEEN_JUMP_MAX, or lies
            below more than SEEN_RANGES_MAX gaps, so far back that it is not remembered. A refused message is neither
            passed on nor acknowledged.
        """
        instance, count = message_id >> COUNT_BITS, message_id & _COUNT_MASK
        if instance != self._instance:
            self._turn_to(instance)
        counts = self._counts
        if count < self._floor or (counts and count >= counts.end + SEEN_JUMP_MAX):
            return Sighting.REFUSED
        before = len(counts)
        if not counts.add(count):
            return Sighting.REPEAT
        now = len(counts)
        if now != before:
            self._ranges.count += now - before
            while now > SEEN_RANGES_MAX or (now > SEEN_SHARE and self._ranges.count > SEEN_TOTAL_MAX):
                lows = iter(counts)
                _, high = next(lows)
                self._floor = next(lows)[0]
                counts.discard(0, high)
                self._ranges.count -= 1
                now -= 1
        return Sighting.FIRST

    def forget(self) -> None:
        """Forget all IDs of this peer."""
        self._ranges.count -= len(self._counts) + sum(len(counts) for counts, _ in self._others.values())
        self._counts, self._others = IntervalSet(), {}

    def _turn_to(self, instance: int) -> None:
        if self._instance >= 0:
            self._others[self._instance] = self._counts, self._floor
        self._counts, self._floor = self._others.pop(instance, (IntervalSet(), 0))
        self._instance = instance
        if len(self._others) >= SEEN_INSTANCES_MAX:
            counts, _ = self._others.pop(next(iter(self._others)))
            self._ranges.count -= len(counts)
