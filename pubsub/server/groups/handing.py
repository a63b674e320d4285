"""Handing out: the records that a member gets, and the answer to its message (docs/explanation/groups.md, *Fairness*).

A member gets at most its share: the waiting records, divided by the members that wait, and at least one record. A
record that was the first one of the offer of a member that went silent is offered alone, and is never claimed in
advance. In a keyed group a part stays with its member. A member without work takes a part that nobody works on, or one
of a member with several (GR16, GR17 and GR22).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from pubsub.base.intervals import IntervalSet
from pubsub.base.limits import CLAIMED_BYTES_MAX, CLAIMED_RANGES_MAX, CLAIMED_RECORDS_MAX, HOLDING_LINES_MAX
from pubsub.protocol.group_bodies import HELD, LOST, OFFERED, Holding, join_holdings
from pubsub.protocol.records import RecordsBuilder
from pubsub.server.groups.activity import Offer, Poll, Ranges
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.letters import dead_letter, is_dead, is_full
from pubsub.server.groups.scan import Run, Scan
from pubsub.server.topic.group import Group, Key, Lane, common

REPAIR_SECONDS: Final = 0.5
"""Pause before another look at a batch that the other member of the store repairs."""

LOOKED_AT_MAX: Final = 20_000
"""Records that one member's message may be looked at for, so that records offered to others do not delay the loop."""


@dataclass(slots=True)
class Room:
    """How much a member may still get.

    Attributes:
        records, size, ranges: limits.
        claim: True: its records are claimed at once.
        waited: True: nothing is claimed, since its message has waited (GR27).
        ended: True: it is to ask again, because a loss is claimed at once.
        given: number of records that it got.
        damaged: batches (log number and offset) found damaged.
    """

    records: int
    size: int
    ranges: int
    claim: bool
    given: int = 0
    given_bytes: int = 0
    looked: int = 0
    alone: bool = False
    waited: bool = False
    ended: bool = False
    damaged: list[tuple[int, int]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.alone or self.given >= self.records or self.ranges <= 0 or self.looked >= LOOKED_AT_MAX


def room_of(context: GroupContext, key: Key, poll: Poll, share: int, size: int) -> tuple[Room, str]:
    """Return how much a member may get, and the reason if it gets nothing.

    Args:
        share: its share of the waiting records.
        size: the server's limit of an answer (bytes).
    """
    member, offer, work = context.group.members[key], context.activity.offers.get(key), poll.work
    held = sum(context.count(*piece) for piece in member.pieces()) if member.held else 0
    offered = offer.records() if offer is not None else 0
    records = min(work.records_max, CLAIMED_RECORDS_MAX - max(held, offered), max(1, share))
    used = (held + offered) * context.activity.sizes.get(key, 0.0)
    size = min(work.bytes_max or size, size, max(1, CLAIMED_BYTES_MAX - int(used)))
    ranges = CLAIMED_RANGES_MAX - max(member.ranges, 0 if offer is None else len(offer.counts) + len(offer.ranges))
    if context.group.row.suspended:
        return Room(0, 0, 0, claim=False), "suspended"
    if is_full(context.group):
        return Room(0, 0, 0, claim=False), "dead_letters_full"
    if records <= 0 or ranges <= 0 or used >= CLAIMED_BYTES_MAX:
        return Room(0, 0, 0, claim=False), "claimed_max" if work.records_max else ""
    return Room(records, size, ranges, bool(work.claim)), ""


def hand(context: GroupContext, key: Key, room: Room, hungry: int) -> None:
    """Give a member records up to its room.

    Args:
        hungry: number of members that wait for something.
    """
    if room.full:
        return
    for part in _parts(context, key, hungry) if context.group.keyed else (0,):
        if room.full:
            break
        before = room.given
        _from_lane(context, key, part, room)
        if context.group.keyed and room.given > before:
            context.activity.owners[part] = key
    if room.given:
        mean, known = room.given_bytes / room.given, context.activity.sizes.get(key)
        context.activity.sizes[key] = mean if known is None else (known + mean) / 2


def _from_lane(context: GroupContext, key: Key, part: int, room: Room) -> None:
    """Give a member records of a part."""
    group, scan = context.group, context.scan()
    mine = context.activity.offers.get(key)
    skip = mine.counts.get(part, 0) if mine is not None else 0
    claim = room.claim and not skip  # Claims are the front of a part, and these records are behind an offer.
    others = _excluded(context, key)
    waits = False
    for run in scan.front(part):
        fact = group.facts.at(part, run.log, run.low)
        if fact.due > context.stamp:
            context.activity.due = min(context.activity.due, context.now + (fact.due - context.stamp) / 1_000_000)
            waits = group.keyed
            if group.keyed:
                break  # The part waits for its front.
            continue
        if run.damaged is not None:
            room.damaged.append(run.damaged)
            if context.repairs(*run.damaged):
                context.activity.due, waits = min(context.activity.due, context.now + REPAIR_SECONDS), True
                break
        if run.batch is not None and (reason := is_dead(group, fact)):  # A lost record is told as lost.
            if all(dead_letter(context, None, part, run.log, offset, reason) for offset in range(run.low, run.high)):
                continue
            waits = True
            break
        if skip:  # Offered to it before.
            skip -= 1
            continue
        for piece in _pieces(run, others.get((part, run.log))):
            room.looked += piece.high - piece.low
            if room.full or not _give(context, key, piece, room, claim=claim, suspect=fact.losses > 0):
                waits = True
                break
        if waits:
            break
    _pass_over(context, scan)
    if scan.expired:
        context.activity.count("expired", scan.expired)
    if not waits and group.keyed and context.activity.ready is not None:
        context.activity.ready.pop(part, None)


def _pass_over(context: GroupContext, scan: Scan) -> None:
    """Drop the ranges without a record to hand out, with what is known of records that were there."""
    version = context.group.facts.version
    for part, ranges in scan.passed.items():
        context.backlog.pass_over(part, ranges)
        for one in ranges:
            context.group.facts.forget(part, *one)
    if context.group.facts.version != version:
        context.note()


def _excluded(context: GroupContext, key: Key) -> dict[Lane, IntervalSet]:
    """Return all offers of a shared group."""
    out: dict[Lane, IntervalSet] = {}
    if not context.group.keyed:
        for offer in context.activity.offers.values():
            for lane, mine in offer.ranges.items():
                for low, high in mine:
                    out.setdefault(lane, IntervalSet()).add(low, high)
    return out


def _pieces(run: Run, excluded: IntervalSet | None) -> Iterator[Run]:
    """Yield the parts of a run that are offered to nobody."""
    if not excluded:
        yield run
        return
    place, begin = run.low, run.begin
    for low, high in common(excluded, run.low, run.high):
        if place < low:
            yield run._replace(low=place, high=low, begin=begin)
        place = begin = high
    if place < run.high:
        yield run._replace(low=place, begin=begin)


def _give(context: GroupContext, key: Key, run: Run, room: Room, *, claim: bool, suspect: bool) -> bool:
    """Give a member records of a run; return False if it gets no more."""
    if suspect and room.given:
        return not context.group.keyed  # It is offered alone, to a member without other work.
    if run.batch is None and room.waited:
        room.ended = True
        return False
    mine = context.activity.offers.get(key)
    if run.batch is None and mine is not None and run.part in mine.counts:
        return False  # A loss is claimed at once, and claims are the front of a part.
    count = 1 if suspect else min(run.high - run.low, room.records - room.given)
    run = run if run.batch is None else run.until(count)
    size = run.size()
    while size > room.size - room.given_bytes and run.high - run.low > 1:
        run = run.until((run.high - run.low) // 2)
        size = run.size()
    if room.given and size > room.size - room.given_bytes:
        return False
    at_once = run.batch is None or (claim and not suspect)  # Lost records have no effect.
    joins = _claim(context, key, run) if at_once else _offer(context, key, run)
    room.ranges -= not joins
    room.given += run.high - run.low
    room.given_bytes += size
    room.alone = suspect
    return not room.full


def _claim(context: GroupContext, key: Key, run: Run) -> bool:
    """Claim a run; return True if it joins a range that the member holds."""
    before = context.group.members[key].ranges
    context.take(key, run)
    return context.group.members[key].ranges == before


def _offer(context: GroupContext, key: Key, run: Run) -> bool:
    offer = context.activity.offers.setdefault(key, Offer())
    if context.group.keyed:
        known = run.part in offer.counts
        offer.counts[run.part] = offer.counts.get(run.part, 0) + 1
        return known
    lane = offer.ranges.setdefault((run.part, run.log), IntervalSet())
    before = len(lane)
    lane.add(run.low, run.high)
    return len(lane) == before


# The parts of a keyed group


def _parts(context: GroupContext, key: Key, hungry: int) -> Iterator[int]:
    """Yield the parts from which a member may get something, its own first (GR16)."""
    group, activity, owners = context.group, context.activity, context.activity.owners
    ready = list(activity.ready) if activity.ready is not None else list(group.parts)
    held = {part: holder for part, holder in group.holders.items() if holder != key}
    held |= {part: other for other, offer in activity.offers.items() if other != key for part in offer.counts}
    mine = [part for part in ready if owners.get(part) == key]
    free = [part for part in ready if part not in held and not _works(context, owners.get(part))]
    yield from (part for part in mine if part not in held)
    yield from free[: max(1, len(ready) // hungry)]
    if free or any(_works(context, held[part]) for part in mine if part in held):
        return  # A part that moves to it is still worked on.
    waiting: dict[Key, list[int]] = {}
    for part in ready:
        owner = held.get(part, owners.get(part))
        if owner is not None and owner != key and _works(context, owner):
            waiting.setdefault(owner, []).append(part)
    richest = max(waiting, key=lambda one: len(waiting[one]), default=key)
    if len(waiting.get(richest, ())) > len(mine) + 1:
        part = next((part for part in waiting[richest] if part not in held), waiting[richest][-1])
        owners[part] = key  # Nothing more of it goes to the other member.
        if part not in held:
            yield part


def _works(context: GroupContext, key: Key | None) -> bool:
    """Return True if a member is heard, and holds something, is offered something, or waits."""
    if key is None or not context.activity.is_heard(key, context.now, context.liveness):
        return key in context.activity.polls
    member = context.group.members.get(key)
    return key in context.activity.polls or key in context.activity.offers or (member is not None and bool(member.held))


# The answer


def answer(context: GroupContext, key: Key, named: Ranges) -> tuple[bytes, int, int, list[tuple[int, int]]]:
    """Return the answer with all that a member holds and is offered (GR5).

    Args:
        named: the ranges that its message named: their records are not sent again.

    Returns:
        The body, the number of records, their checksum, and the batches found damaged.
    """
    builder, damaged, lines = RecordsBuilder(), list[tuple[int, int]](), list[Holding]()
    for part, log, low, high in _in_order(context.group, key):
        place = low
        for run in _unnamed(context, part, log, _split(named.get((part, log)), low, high)):
            if run.batch is not None:
                _add(builder, run)
                continue
            _tell(context, lines, HELD, part, log, place, run.low)
            lines.append(Holding(LOST, context.group.shown(part, log, run.low, run.high), reason=run.reason))
            damaged += [run.damaged] if run.damaged is not None else []
            place = run.high
        _tell(context, lines, HELD, part, log, place, high)
    for run in _offered(context, key):
        if run.batch is None:  # It went since. It is no offer any more, and is told as lost when it is claimed.
            continue
        _tell(context, lines, OFFERED, run.part, run.log, run.begin, run.high)
        for a, b, is_named in _split(named.get((run.part, run.log)), run.low, run.high):
            if not is_named:
                _add(builder, run._replace(low=a, high=b))
    body = builder.build() if builder.records else b""
    return join_holdings(lines[:HOLDING_LINES_MAX], body), builder.records, crc32(body) if body else 0, damaged


def _in_order(group: Group, key: Key) -> list[tuple[int, str, int, int]]:
    """Return the claims of a member as (part, log, low, high), in the order of the group."""
    pieces = [
        (part, log, a, b)
        for part, log, low, high in group.members[key].pieces()
        for a, b in group.segments(log, low, high)
    ]
    return sorted(pieces, key=lambda piece: group.place(*piece[1:3]))


def _unnamed(context: GroupContext, part: int, log: str, pieces: Iterator[tuple[int, int, bool]]) -> Iterator[Run]:
    """Yield the records of the pieces that a message did not name."""
    for low, high, is_named in pieces:
        if not is_named:
            yield from context.scan().held(part, log, low, high)


def _split(named: IntervalSet | None, low: int, high: int) -> Iterator[tuple[int, int, bool]]:
    """Yield [low, high) in pieces, each with True if it is named."""
    place = low
    for a, b in common(named, low, high):
        if place < a:
            yield place, a, False
        yield a, b, True
        place = b
    if place < high:
        yield place, high, False


def _tell(context: GroupContext, lines: list[Holding], kind: str, part: int, log: str, low: int, high: int) -> None:
    """Add lines for a range; they are in the order in which a member handles the records."""
    for a, b, fact in context.group.facts.pieces(part, log, low, high):
        line = Holding(kind, context.group.shown(part, log, a, b), fact.attempts, fact.doubtful)
        before = lines[-1] if lines else None
        if (
            before is not None
            and before._replace(range=before.range._replace(low=a, high=b)) == line
            and before.range.high == a
        ):
            line = line._replace(range=before.range._replace(high=b))
            lines.pop()
        lines.append(line)


def _offered(context: GroupContext, key: Key) -> Iterator[Run]:
    """Yield the records of the offer to a member."""
    offer = context.activity.offers.get(key)
    if offer is None:
        return
    for (part, log), mine in sorted(offer.ranges.items()):
        for low, high in mine:
            yield from context.scan().held(part, log, low, high)
    for part, count in sorted(offer.counts.items()):
        left = count
        for run in context.scan().front(part):
            if not left or context.group.facts.at(part, run.log, run.low).due > context.stamp:
                break
            yield run
            left -= 1


def _add(builder: RecordsBuilder, run: Run) -> None:
    """Add the records of a run to the answer."""
    batch = run.batch
    if batch is None or batch.body is None:
        return
    first = run.first
    counter = run.counter if run.copy is not None else batch.counter + first
    stop = first + run.high - run.low
    builder.add(run.log, run.low, run.publisher, counter, batch.stamp, batch.body, first, stop)
