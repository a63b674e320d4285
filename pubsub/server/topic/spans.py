"""Legs: what a subscriber is still to receive, as ranges of logs (docs/architecture.md, *Topics and logs*).

Subscribing is one leg [end, infinity) on the open log; acknowledging raises its low end; so a million waiting messages
cost one range. After a join a subscriber has several legs, in the order in which it receives them, and a leg into the
other server's log leaves out what its own log held already (`skip`, by publisher and counter) and what was put before
the subscription (`since`, by stamp). A topic's spine is legs too: over everything that the topic holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pubsub.protocol.names import Position

ALWAYS: Final = 0
"""The `since` of a leg that leaves nothing out by stamp."""


@dataclass(slots=True, frozen=True)
class Leg:
    """Offsets [low, high) of a log.

    Attributes:
        log: the log's ID.
        low: the first offset.
        high: one above the last; None: it grows with the log.
        skip: number of a stored copy of `last`: records with counters up to it are left out; 0: none.
        since: records with stamps up to it are left out (microseconds since 1970).
    """

    log: str
    low: int
    high: int | None = None
    skip: int = 0
    since: int = ALWAYS

    def holds(self, offset: int) -> bool:
        """Whether the offset lies in it."""
        return self.low <= offset and (self.high is None or offset < self.high)

    def from_offset(self, low: int) -> Leg:
        """The same leg without offsets below `low`."""
        return replace(self, low=low)


def find(legs: Sequence[Leg], position: Position) -> int | None:
    """Index of the leg that holds a position, or None."""
    for index, leg in enumerate(legs):
        if leg.log == position[0] and leg.holds(position[1]):
            return index
    return None


def after(legs: Sequence[Leg], position: Position) -> tuple[Leg, ...] | None:
    """The legs without all up to and with `position`, or None where no leg holds it.

    A leg that is used up goes, unless it can still grow.
    """
    index = find(legs, position)
    if index is None:
        return None
    leg = legs[index].from_offset(position[1] + 1)
    rest = tuple(legs[index + 1 :])
    return rest if leg.high is not None and leg.low >= leg.high else (leg, *rest)


def cut(legs: Iterable[Leg], log: str, end: int) -> tuple[Leg, ...]:
    """The legs with the growing one of `log` ended at `end`; empty ones go."""
    closed = [replace(leg, high=end) if leg.log == log and leg.high is None else leg for leg in legs]
    return tuple(leg for leg in closed if leg.high is None or leg.low < leg.high)


def floors(holders: Iterable[Iterable[Leg]], ends: Mapping[str, int]) -> dict[str, int]:
    """For each log the offset below which no leg holds anything.

    Args:
        holders: the legs of each subscriber.
        ends: each log's end, which is the answer where no leg holds any of it.
    """
    lowest = dict(ends)
    for legs in holders:
        for leg in legs:
            if leg.low < lowest.get(leg.log, 0):
                lowest[leg.log] = leg.low
    return lowest
