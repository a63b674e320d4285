"""The memory of a group at a server: the members that were heard, the offers, and the messages that wait.

All of it may be lost at any moment. An offer binds nothing; only a claim is stored (docs/explanation/groups.md, GR3 and
GR18). An offer of a shared group is a set of ranges. That of a keyed group is a number of records from the front of a
part, since records that another member gives back come to the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pubsub.base.intervals import IntervalSet
from pubsub.protocol.group_bodies import Range
from pubsub.protocol.groups import Work
from pubsub.server.state.replies import Origin
from pubsub.server.topic.group import Group, Key, Lane, common

Ranges = dict[Lane, IntervalSet]


def ranges_of(some: Iterable[Range]) -> Ranges:
    """Return ranges as sets, by lane."""
    out: Ranges = {}
    for one in some:
        out.setdefault((one.part or 0, one.log), IntervalSet()).add(one.low, one.high)
    return out


@dataclass(slots=True)
class Poll:
    """A WORK that waits.

    Attributes:
        named: the ranges that it goes on with: their records are not sent again.
        since, expires: monotonic seconds.
        turn: number of the loop in which it came. In a later one it gets offers and no claims, since its process may
            have ended (GR27).
        changed: True: something that it named is no longer the member's, so it is answered at once.
    """

    origin: Origin
    work: Work
    named: Ranges
    since: float
    expires: float
    turn: int
    changed: bool = False


@dataclass(slots=True)
class Offer:
    """The offer to one member.

    Attributes:
        ranges: of a shared group.
        counts: of a keyed group, the number of records from the front of each part.
        blind: True: it was made to a message that had waited for long, and the member has not named it yet.
    """

    ranges: Ranges = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    blind: bool = False

    def __bool__(self) -> bool:
        return bool(self.ranges or self.counts)

    def discard(self, lane: Lane, low: int, high: int) -> bool:
        """Remove [low, high) of a shared group; return True if something was offered there."""
        mine = self.ranges.get(lane)
        if not common(mine, low, high) or mine is None:
            return False
        mine.discard(low, high)
        if not mine:
            del self.ranges[lane]
        return True

    def keep(self, named: Ranges) -> None:
        """Keep only the named ranges, of a shared group."""
        kept: Ranges = {}
        for lane, mine in self.ranges.items():
            both = [piece for low, high in named.get(lane, ()) for piece in common(mine, low, high)]
            if both:
                kept[lane] = IntervalSet(both)
        self.ranges = kept

    def records(self) -> int:
        """Return the number of records; of a shared group, an upper bound."""
        return sum(self.counts.values()) + sum(mine.count() for mine in self.ranges.values())


@dataclass(slots=True)
class Activity:
    """The memory of one group.

    Attributes:
        since: monotonic seconds at which it begins.
        heard: when each member was heard, or got an answer.
        held_since: when each member began to hold its claims.
        offers: by member.
        polls: the messages that wait, the longest first.
        owners: of a keyed group, the member to which a part went last.
        ready: of a keyed group, the parts in which something may wait; None: all.
        seen: by log, the offset up to which the parts of the records are in `ready`.
        look: True: the polls are served in this loop.
        expired: members whose messages have waited for long enough.
        due: monotonic seconds at which a delayed record is due.
        sizes: the mean bytes of records that went to a member.
        counts: events, by name.
        silent: members with claims that were silent at the last look, and that others can look up in a database.
        looks: of these, the member that was told to look it up, and when.
    """

    since: float
    heard: dict[Key, float] = field(default_factory=dict)
    held_since: dict[Key, float] = field(default_factory=dict)
    offers: dict[Key, Offer] = field(default_factory=dict)
    polls: dict[Key, Poll] = field(default_factory=dict)
    owners: dict[int, Key] = field(default_factory=dict)
    ready: dict[int, None] | None = None
    seen: dict[str, int] = field(default_factory=dict)
    look: bool = False
    expired: list[Key] = field(default_factory=list)
    due: float = float("inf")
    sizes: dict[Key, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    silent: list[Key] = field(default_factory=list)
    looks: dict[Key, tuple[Key, float]] = field(default_factory=dict)

    def silence(self, key: Key, now: float) -> float:
        """Return the seconds for which a member has not been heard."""
        return now - self.heard.get(key, self.since)

    def is_heard(self, key: Key, now: float, liveness: float) -> bool:
        """Return True if a member was heard, in this process, within a liveness."""
        return key in self.heard and now - self.heard[key] <= liveness

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def wake(self, part: int | None = None) -> None:
        """Note that something waits, of a keyed group in this part."""
        self.look = self.look or bool(self.polls)
        if part is not None and self.ready is not None:
            self.ready[part] = None

    def took_from(self, key: Key) -> None:
        """Note that a claim of a member, or its offer, has ended."""
        poll = self.polls.get(key)
        if poll is not None:
            poll.changed = self.look = True

    def end_offers(self, group: Group, lane: Lane, low: int, high: int, but: Key | None = None) -> None:
        """End the offers of [low, high), because it is done, claimed or dead, except to one member.

        In a keyed group it ends for the whole part (GR18).
        """
        for key, offer in list(self.offers.items()):
            if key == but:
                continue
            gone = offer.counts.pop(lane[0], 0) > 0 if group.keyed else offer.discard(lane, low, high)
            if gone:
                self.took_from(key)
                if not offer:
                    del self.offers[key]

    def offered_to_others(self, key: Key) -> Iterator[tuple[Lane, tuple[int, int]]]:
        """Yield the offers to other members than this one, of a shared group."""
        for other, offer in self.offers.items():
            if other != key:
                for lane, mine in offer.ranges.items():
                    for piece in mine:
                        yield lane, piece

    def forget(self, key: Key) -> None:
        """Forget a member after the end of its process."""
        self.offers.pop(key, None)
        self.polls.pop(key, None)
        self.held_since.pop(key, None)
        self.sizes.pop(key, None)
