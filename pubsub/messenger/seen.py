"""Which messages of a peer were seen before (docs/messenger.md, *Message IDs*).

A message ID is a number of 63 bits: which Messenger sent it (31 random bits, fresh for each), then how many it sent to
this peer before (32 bits). So the IDs of one Messenger are dense, a million of them cost one range, and a Messenger
that starts anew behind the same address is told from a repeat without asking it. The document's explicit complement
would let one forged ID of 2^63 fill the memory; here it costs nothing, and an ID that jumps too far is refused, because
to believe it would make a stranger of everything that is really sent.
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
    """What a message ID turned out to be."""

    FIRST = 1
    REPEAT = 2
    REFUSED = 3


class Ranges:
    """How many ranges all peers of a Messenger take together."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Seen:
    """The message IDs seen of one peer.

    Args:
        ranges: where its ranges are counted, with those of others.
    """

    __slots__ = ("_counts", "_floor", "_instance", "_others", "_ranges")

    def __init__(self, ranges: Ranges | None = None) -> None:
        self._ranges = Ranges() if ranges is None else ranges
        self._instance = -1
        self._counts = IntervalSet()
        self._floor = 0
        self._others: dict[int, tuple[IntervalSet, int]] = {}

    def see(self, message_id: int) -> Sighting:
        """Take note of an ID.

        Returns:
            FIRST where it was not seen before, REPEAT where it was, and REFUSED where it jumps by more than
            SEEN_JUMP_MAX, or lies so far back, below more than SEEN_RANGES_MAX gaps, that this is not known any more.
            A refused message is neither handed on nor acknowledged.
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
        """Nothing of this peer is wanted any more."""
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
