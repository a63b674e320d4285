"""One server's part of the topic: logs, the last counters, and each subscriber's remaining messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

SKEW: Final = 20
"""Bound on the difference of two servers' clocks, in steps."""

Place = tuple[str, int]
Content = tuple[str, int]


@dataclass(frozen=True)
class Record:
    """One message; `content` is its publisher and counter."""

    content: Content
    stamp: int


@dataclass(frozen=True)
class Leg:
    """Offsets [low, high) of a log, without counters up to `skip` and stamps up to `since`."""

    log: str
    low: int
    high: int | None = None
    skip: Mapping[str, int] = field(default_factory=dict)
    since: int = -SKEW
    doubtful: bool = False

    def holds(self, place: Place) -> bool:
        """Whether a place lies in it."""
        return self.log == place[0] and self.low <= place[1] and (self.high is None or place[1] < self.high)


@dataclass
class Entry:
    """A subscription; `handed` is in memory only."""

    number: int
    on: bool
    since: int
    legs: list[Leg]
    acknowledged: Place
    handed: Place | None = None
    continued: bool = False


def cut(legs: Sequence[Leg], log: str, end: int) -> list[Leg]:
    """The legs, with the open one of `log` ended."""
    closed = [replace(leg, high=end) if leg.log == log and leg.high is None else leg for leg in legs]
    return [leg for leg in closed if leg.high is None or leg.low < leg.high]


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The larger counter of each publisher."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def view(spine: Sequence[Leg], skip: Mapping[str, int], since: int) -> list[Leg]:
    """Another server's records as seen by one that holds all up to `skip` and subscribed at `since`."""
    return [replace(leg, skip=larger(leg.skip, skip), since=max(leg.since, since)) for leg in spine]


def index_of(legs: Sequence[Leg], place: Place | None) -> int:
    """Which leg holds a place; -1: none does."""
    return next((index for index, leg in enumerate(legs) if place and leg.holds(place)), -1)


class Topic:
    """What one server holds of the topic."""

    def __init__(self, log: str) -> None:
        self.open, self.spine = log, [Leg(log, 1)]
        self.logs: dict[str, list[Record]] = {log: []}
        self.last: dict[str, int] = {}
        self.entries: dict[str, Entry] = {}

    @property
    def end(self) -> int:
        """Of the open log."""
        return len(self.logs[self.open]) + 1

    def append(self, content: Content, stamp: int) -> None:
        """Take a message."""
        own = self.logs[self.open]
        own.append(Record(content, max(stamp, own[-1].stamp if own else stamp)))
        self.last[content[0]] = content[1]

    def _offsets(self, leg: Leg) -> range:
        return range(leg.low, leg.high or len(self.logs[leg.log]) + 1)

    def read(self, legs: Sequence[Leg], after: Place | None, limit: int) -> list[tuple[Place, Record, bool]]:
        """Up to `limit` records behind a place, each with its mark; None: from the start."""
        return [found for found, _ in zip(self._walk(legs, after), range(limit), strict=False)]

    def _walk(self, legs: Sequence[Leg], after: Place | None) -> Iterator[tuple[Place, Record, bool]]:
        for leg in legs:
            for offset in self._offsets(leg):
                if after is not None:
                    after = None if (leg.log, offset) == after else after
                    continue
                record = self.logs[leg.log][offset - 1]
                publisher, counter = record.content
                if counter > leg.skip.get(publisher, 0) and record.stamp > leg.since:
                    yield (leg.log, offset), record, leg.doubtful

    # Continuing

    def ends(self, entry: Entry) -> Place | None:
        """The last place that is there for a subscriber."""
        for leg in reversed(entry.legs):
            if offsets := self._offsets(leg):
                return leg.log, offsets[-1]
        return None

    def hand_out(self, entry: Entry, place: Place) -> None:
        """All up to this place is handed out."""
        old, new = index_of(entry.legs, entry.handed), index_of(entry.legs, place)
        if (new, place[1]) > (old, entry.handed[1] if entry.handed and old >= 0 else 0):
            entry.handed = place

    def mark(self, entry: Entry) -> None:
        """What was handed out is doubtful."""
        index = index_of(entry.legs, entry.handed)
        if index < 0 or entry.handed is None:
            return
        leg, stop = entry.legs[index], entry.handed[1] + 1
        marked = [replace(one, doubtful=True) for one in (*entry.legs[:index], replace(leg, high=stop))]
        rest = [] if leg.high is not None and stop >= leg.high else [replace(leg, low=stop)]
        entry.legs = [*marked, *rest, *entry.legs[index + 1 :]]

    def absorb(self, other: Topic, rules: Mapping[str, bool]) -> None:
        """The merge: `other` is frozen and goes; nothing is copied or renumbered."""
        join, ours, theirs, mine_before = self.end, dict(self.last), dict(other.last), dict(self.entries)
        own, foreign = cut(self.spine, self.open, join), cut(other.spine, other.open, other.end)
        for name in sorted(self.entries.keys() | other.entries.keys()):
            mine, its = self.entries.get(name), other.entries.get(name)
            if mine is not None and (its is None or mine.number >= its.number):
                entry, rest = mine, cut(mine.legs, self.open, join) + view(foreign, ours, mine.since - SKEW)
            else:
                assert its is not None
                entry, rest = its, cut(its.legs, other.open, other.end) + view(own, theirs, its.since - SKEW)
            entry.legs = [*rest, Leg(self.open, join)] if entry.on else []
            self.entries[name] = entry
        self.spine = [*own, *view(foreign, ours, -SKEW), Leg(self.open, join)]
        self.last = larger(self.last, other.last)
        self.logs |= other.logs
        for name, entry in self.entries.items():
            if entry is not mine_before.get(name):
                entry.handed = self.ends(entry) if rules["came"] else None
            elif rules["joined"]:
                entry.handed = self.ends(entry)

    def restart(self, rules: Mapping[str, bool]) -> None:
        """What was in memory only is gone."""
        for entry in self.entries.values():
            entry.handed = self.ends(entry) if rules["loaded"] else None
            if not rules["stored"]:
                entry.legs = [replace(leg, doubtful=False) for leg in entry.legs]
