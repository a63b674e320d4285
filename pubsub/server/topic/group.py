"""A consumer group of a topic: its values, its members with their claims, facts of records, and copies.

These are the durable parts. The waiting records are in the topic's subscriptions (`consumers.group_key`), one for each
part. Offers are in memory only (`groups.activity`). The rules are those of docs/explanation/groups.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import astuple, replace

from pubsub.base.intervals import IntervalSet
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, WAIT, GroupValues, Range
from pubsub.protocol.names import Position
from pubsub.server.topic.consumers import group_key
from pubsub.server.topic.facts import Facts
from pubsub.server.topic.group_rows import (
    CopyRow,
    GroupChanged,
    GroupRow,
    HeldRow,
    MemberChanged,
    MemberGone,
    MemberRow,
    RetriesChanged,
)
from pubsub.server.topic.spans import Span, cut

GroupsChange = GroupChanged | MemberChanged | MemberGone | RetriesChanged

Key = tuple[str, str]
"""A member: its client and its store (GR7)."""

Lane = tuple[int, str]
"""A part, and a log of it; the part is 0 in a shared group."""

DEAD: Final = 0
HELD: Final = 1
WAITING: Final = 2
"""The states of a copied record: a dead letter, claimed by a member, waiting."""


@dataclass(slots=True)
class Member:
    """A member, as in `MemberRow`.

    Attributes:
        held: its claims.
    """

    number: int = 0
    epoch: int = 0
    left: bool = False
    heard: int = 0
    held: dict[Lane, IntervalSet] = field(default_factory=dict)
    database: str = ""

    def hold(self, lane: Lane, low: int, high: int) -> None:
        self.held.setdefault(lane, IntervalSet()).add(low, high)

    def drop(self, lane: Lane, low: int, high: int) -> list[tuple[int, int]]:
        """Remove its claims in [low, high), and return them."""
        mine = self.held.get(lane)
        if mine is None:
            return []
        dropped = common(mine, low, high)
        for a, b in dropped:
            mine.discard(a, b)
        if not mine:
            del self.held[lane]
        return dropped

    @property
    def ranges(self) -> int:
        return sum(map(len, self.held.values()))

    def pieces(self) -> Iterator[tuple[int, str, int, int]]:
        """Yield its claims as (part, log, low, high)."""
        for (part, log), mine in self.held.items():
            for low, high in mine:
                yield part, log, low, high

    def row(self) -> MemberRow:
        held = tuple(HeldRow(*piece) for piece in self.pieces())
        return MemberRow(self.number, self.epoch, self.left, self.heard, held, self.database)


def member_of(row: MemberRow) -> Member:
    """Return a member as stored."""
    member = Member(row.number, row.epoch, row.left, row.heard, database=row.database)
    for part, log, low, high in map(astuple, row.held):
        member.hold((part, log), low, high)
    return member


def common(ranges: IntervalSet | None, low: int, high: int) -> list[tuple[int, int]]:
    """Return the parts of [low, high) that are in the set."""
    if ranges is None:
        return []
    return [(max(a, low), min(b, high)) for a, b in ranges if a < high and b > low]


@dataclass(slots=True)
class Group:
    """A group of a topic.

    Attributes:
        row: its values.
        members: by client and store.
        facts: of records that are not new.
        copies: records copied out of their logs, in the order in which they were.
        holders: in a keyed group, the member that holds claims of a part.
        dirty: members with a changed row; None: the member is gone.
        changed: True if `row` has changed.
    """

    name: str
    row: GroupRow
    members: dict[Key, Member] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    copies: dict[Position, CopyRow] = field(default_factory=dict)
    copied: dict[Lane, IntervalSet] = field(default_factory=dict, compare=False)
    """The positions of `copies`, by lane."""
    copied_bytes: int = field(default=0, compare=False)
    dead: int = field(default=0, compare=False)
    """Number of copies that are dead letters."""
    holders: dict[int, Key] = field(default_factory=dict, compare=False)
    dirty: dict[Key, None] = field(default_factory=dict, compare=False)
    changed: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        for row in self.copies.values():
            self._count(row, 1)
        self.index_holders()

    def index_holders(self) -> None:
        """Note which member holds claims of each part."""
        if self.keyed:
            self.holders = {part: key for key, member in self.members.items() for part, _ in member.held}

    @property
    def keyed(self) -> bool:
        return self.row.parts > 0

    @property
    def parts(self) -> range:
        """The numbers of its parts; a shared group has one, 0."""
        return range(self.row.parts or 1)

    def key(self, part: int) -> str:
        """Return the key of the subscription with the waiting records of a part."""
        return group_key(self.name, part if self.keyed else None)

    def shown(self, part: int, log: str, low: int, high: int) -> Range:
        """Return a range as members know it."""
        return Range(log, low, high, part if self.keyed else None)

    def fits(self, ranges: Iterable[Range]) -> bool:
        """Return True if these ranges have parts as this group's must."""
        if self.keyed:
            return all(one.part is not None and one.part < self.row.parts for one in ranges)
        return all(one.part is None for one in ranges)

    @property
    def values(self) -> GroupValues:
        row = self.row
        return GroupValues(
            KEYED if row.parts else SHARED,
            row.parts,
            REDELIVER if row.redeliver else WAIT,
            row.lost_ms,
            row.attempts,
            row.suspended,
            row.made,
        )

    # Changes

    def set(self, **values: object) -> None:
        """Change values of the group."""
        row = replace(self.row, **values)
        if row != self.row:
            self.row, self.changed = row, True

    def member(self, key: Key) -> Member:
        """Return a member, which is new if it is not known."""
        return self.members.setdefault(key, Member())

    def hold(self, key: Key, lane: Lane, low: int, high: int) -> None:
        """Record a claim."""
        self.members[key].hold(lane, low, high)
        self.dirty[key] = None
        if self.keyed:
            self.holders[lane[0]] = key

    def drop(self, key: Key, lane: Lane, low: int, high: int) -> list[tuple[int, int]]:
        """Remove claims of a member in [low, high), and return them."""
        member = self.members[key]
        dropped = member.drop(lane, low, high)
        if dropped:
            self.dirty[key] = None
            if self.keyed and self.holders.get(lane[0]) == key and not any(part == lane[0] for part, _ in member.held):
                del self.holders[lane[0]]
        return dropped

    def forget(self, key: Key) -> None:
        """Forget a member that holds nothing."""
        assert not self.members[key].held
        del self.members[key]
        self.dirty[key] = None

    def holders_of(self, part: int) -> list[Key]:
        """Return the members that may hold claims of a part."""
        if self.keyed:
            holder = self.holders.get(part)
            return [] if holder is None else [holder]
        return [key for key, member in self.members.items() if member.held]

    # Copies

    def _count(self, row: CopyRow, sign: int) -> None:
        self.copied_bytes += sign * row.size
        self.dead += sign * (row.state == DEAD)
        lane = row.part, row.log
        if sign > 0:
            self.copied.setdefault(lane, IntervalSet()).add(row.offset)
        else:
            self.copied[lane].discard(row.offset)
            if not self.copied[lane]:
                del self.copied[lane]

    def keep_copy(self, row: CopyRow) -> None:
        """Add a copy, or replace its row."""
        old = self.copies.get((row.log, row.offset))
        if old is not None:
            self._count(old, -1)
        self.copies[row.log, row.offset] = row
        self._count(row, 1)

    def drop_copy(self, position: Position) -> CopyRow | None:
        """Remove a copy; return None if there is none."""
        row = self.copies.pop(position, None)
        if row is not None:
            self._count(row, -1)
        return row

    def touch(self) -> None:
        """Note all of the group as changed, because another store is to write it; its copies are written apart."""
        self.changed = True
        self.dirty |= dict.fromkeys(self.members)
        self.facts.touch()

    def go_on_in(self, log: str, end: int, tail: Span, *, restored: bool) -> None:
        """Continue in another log.

        Args:
            log, end: the closed log, and its end.
            tail: the span of all later records.
            restored: the store was put back. It does not know the claims since the copy (GR21).
        """
        self.set(
            order=(*cut(self.row.order, log, end), tail), suspended=self.row.suspended or (restored and self.row.on)
        )

    # Retention

    def floors(self) -> Iterator[tuple[str, int]]:
        """Yield logs with claims, each with an offset below which no member needs a record that is not copied."""
        for lane, rest in self._uncopied():
            yield lane[1], next(iter(rest))[0]

    def needed(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the ranges with claimed records that are not copied, as (key of the part, log, low, high)."""
        for (part, log), rest in self._uncopied():
            for low, high in rest:
                yield self.key(part), log, low, high

    def _uncopied(self) -> Iterator[tuple[Lane, IntervalSet]]:
        """Yield the claims that are not copied, by lane and member; no set is empty."""
        for member in self.members.values():
            for lane, mine in member.held.items():
                copied = self.copied.get(lane)
                if copied is None:
                    yield lane, mine
                    continue
                rest = IntervalSet(mine)
                for low, high in copied:
                    rest.discard(low, high)
                if rest:
                    yield lane, rest

    def segments(self, log: str, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield [low, high) in pieces that lie together in the order of the group."""
        cuts_at = {span.low for span in self.row.order if span.log == log and low < span.low < high}
        for stop in (*sorted(cuts_at), high):
            yield low, stop
            low = stop

    def place(self, log: str, offset: int) -> tuple[int, int]:
        """Return a number pair that orders positions as they are handed out."""
        return place(self.row.order, log, offset)


def order_of(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans as an order, which leaves nothing out."""
    return tuple(Span(span.log, span.low, span.high) for span in spans)


def place(order: Iterable[Span], log: str, offset: int) -> tuple[int, int]:
    """Return a number pair that orders positions along these spans; a position before all spans comes first."""
    found = -1
    for index, span in enumerate(order):
        if span.log == log and span.low <= offset:
            found = index
            if span.high is None or offset < span.high:
                break
    return found, offset


def group_changes(topic: int, group: Group) -> list[GroupsChange]:
    """Return the changes of a group since the last call, and forget them.

    Args:
        topic: the topic's number.
    """
    out: list[GroupsChange] = []
    if group.changed:
        out.append(GroupChanged(topic, group.name, group.row))
    for key in group.dirty:
        member = group.members.get(key)
        if member is None:
            out.append(MemberGone(topic, group.name, *key))
        else:
            out.append(MemberChanged(topic, group.name, *key, member.row()))
    if retries := group.facts.take_changed():
        out.append(RetriesChanged(topic, group.name, retries))
    group.changed, group.dirty = False, {}
    return out
