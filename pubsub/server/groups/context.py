"""One group at work: its durable part (`topic.group`), its memory (`activity`), and the store's records.

A `GroupContext` is made for one step of a group, such as one request of a member. It notes each change of the group in
the topic, and the next commit writes that. `work` applies a member's WORK, `handing` gives out records, and `letters`
keeps the dead ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pubsub.base.limits import CLAIMED_RANGES_MAX, CLAIMED_RECORDS_MAX
from pubsub.protocol.group_bodies import Range
from pubsub.server.groups.activity import Activity, Ranges
from pubsub.server.groups.backlog import Backlog
from pubsub.server.groups.index import PartIndex
from pubsub.server.groups.scan import Run, Scan
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.group import Group, Key, Lane
from pubsub.server.topic.topic import Topic


@dataclass(slots=True)
class GroupContext:
    """One group at work.

    Attributes:
        index: of a keyed group; None: it is shared.
        now, stamp: monotonic seconds, and microseconds since 1970.
        oldest: batches with timestamps up to this one are too old to be handed out; 0: none are.
        liveness: seconds of silence after which a member is not waited for.
        repairs: asks the other member of the store for a damaged batch; False if it cannot have it.
    """

    topic: Topic
    group: Group
    activity: Activity
    reader: BatchReader
    publishers: Sequence[str]
    index: PartIndex | None
    now: float
    stamp: int
    oldest: int = 0
    repairs: Callable[[int, int], bool] = lambda log, offset: False
    liveness: float = 3.0

    @property
    def backlog(self) -> Backlog:
        return Backlog(self.topic, self.group)

    def scan(self) -> Scan:
        return Scan(self.topic, self.group, self.reader, self.publishers, self.index, self.oldest)

    def note(self) -> None:
        """Note that the group has changed, so that the commit writes its rows."""
        self.topic.dirty.group(self.topic.name, self.group.name)

    def part_at(self, log: str, offset: int) -> int | None:
        """Return the part of a record; None if it is not here."""
        copy = self.group.copies.get((log, offset))
        if copy is not None:
            return copy.part
        if self.index is None:
            return 0
        held = self.topic.logs.get(log)
        return None if held is None else self.index.part_at(held, offset)

    def records(self, part: int, some: Ranges) -> int:
        """Return the number of records of a part in these ranges."""
        number = 0
        for (other, log), mine in some.items():
            if other == part:
                number += sum(self.count(part, log, low, high) for low, high in mine)
        return number

    def count(self, part: int, log: str, low: int, high: int) -> int:
        """Return the number of records of a part in [low, high); of a shared group, an upper bound."""
        if self.index is None:
            return high - low
        held = self.topic.logs.get(log)
        stored = self.index.count(held, part, low, high)
        below = high if held is None else min(high, held.low)
        copied = self.group.copied.get((part, log), ())
        return stored + sum(min(b, below) - max(a, low) for a, b in copied if a < below and b > low)

    # Claims

    def claim(self, key: Key, one: Range) -> None:
        """Claim the waiting records of a range (GR3); of a keyed group, if it is the front of its part (GR16)."""
        lane = one.part or 0, one.log
        if self.group.row.suspended:
            return
        room = self._room(key)
        if self.group.keyed:
            self._claim_front(key, lane, one.low, one.high, room)
            return
        log = self.topic.logs.get(one.log)
        high = one.high if log is None else min(one.high, log.end)
        if high - one.low > room:
            self.activity.count("claims_refused")
        elif one.low < high:
            for low, stop in self.backlog.take(*lane, one.low, high):
                self.hold(key, lane, low, stop)

    def _room(self, key: Key) -> int:
        """Return the number of records that a member may still claim."""
        member = self.group.members[key]
        if member.ranges >= CLAIMED_RANGES_MAX:
            return 0
        return CLAIMED_RECORDS_MAX - sum(self.count(*piece) for piece in member.pieces())

    def _claim_front(self, key: Key, lane: Lane, low: int, high: int, room: int) -> None:
        part = lane[0]
        if self.group.holders.get(part, key) != key:
            self.activity.count("claims_refused")
            return
        found: list[Run] = []
        for run in self.scan().front(part):
            ends = run.log != lane[1] or not low <= run.low < high or len(found) >= room
            if ends or self.group.facts.at(part, run.log, run.low).due > self.stamp:
                break
            found.append(run)
        if not found:
            self.activity.count("claims_refused")
        for run in found:
            self.take(key, run)

    def take(self, key: Key, run: Run) -> None:
        """Claim a run of the first waiting records."""
        lane = run.part, run.log
        for low, high in self.backlog.take(*lane, run.begin if self.group.keyed else run.low, run.high):
            self.hold(key, lane, low, high)

    def hold(self, key: Key, lane: Lane, low: int, high: int) -> None:
        """Record that a member has claimed a range that was taken out of the spans."""
        self.group.hold(key, lane, low, high)
        self.group.facts.change(*lane, low, high, lambda fact: fact._replace(due=0))
        self.activity.held_since.setdefault(key, self.now)
        offer = self.activity.offers.get(key)
        if offer is not None:
            if self.group.keyed:
                left = offer.counts.get(lane[0], 0) - self.count(*lane, low, high)
                offer.counts.pop(lane[0], None)
                if left > 0:
                    offer.counts[lane[0]] = left
            else:
                offer.discard(lane, low, high)
            if not offer:
                del self.activity.offers[key]
        self.activity.end_offers(self.group, lane, low, high, but=key)
        self.activity.count("claimed", high - low)
        self.note()
