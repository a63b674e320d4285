"""A member's words, and the changes that they make (docs/explanation/groups.md, *Wire*).

    done · attempts · claims that are not kept go back · offers that it does not name end · claims

A range that is done counts from any message. All else counts only from a message with a number above the member's
highest one. So a late message gives back no claim with which the member has gone on.

The rules are those of docs/explanation/groups.md, GR3, GR4, GR6, GR16, GR17, GR18, GR19 and GR23.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol.group_bodies import Dead, Later, Range, Say, Tried
from pubsub.server.groups.activity import Ranges, ranges_of
from pubsub.server.groups.desk import Desk
from pubsub.server.groups.letters import TOO_MANY_RETRIES, bury
from pubsub.server.topic.facts import Fact
from pubsub.server.topic.group import Key, Lane

BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 60.0
"""The pause before a record with a failed attempt comes again, doubled with each one."""

RETRIES_MAX: Final = 10_000
"""Rows of retries of one group. Beyond it the next failure makes a dead letter."""

Failed = list[tuple[Lane, int, int]]
"""Records that failed: lane, offset, and the timestamp at which they come again; 0: by their attempts."""


def backoff(attempts: int) -> int:
    """Return the pause after so many attempts (microseconds)."""
    return int(min(BACKOFF_SECONDS * 2.0 ** min(max(attempts - 1, 0), 30), BACKOFF_SECONDS_MAX) * MICROSECONDS)


def hear(desk: Desk, key: Key, say: Say, number: int, epoch: int, *, cut: bool, leave: bool) -> bool:
    """Process the words of a message with a number above the member's highest one.

    Returns:
        True if something changed that has to be stored.
    """
    group = desk.group
    member = group.member(key)
    version, copies = group.facts.version, len(group.copies)
    finish(desk, key, say.done)
    if cut:
        for part, log, low, high in list(member.pieces()):
            group.facts.change(part, log, low, high, lambda fact: fact._replace(attempts=fact.attempts + 1))
    claim = () if leave else say.claim
    named = ranges_of((*say.keep, *claim))
    failed = _begun(desk, key, say)
    for part, log, low, high in list(member.pieces()):
        _return_rest(desk, key, (part, log), low, high, named)
    _end_offer(desk, key, Say() if leave else say)
    # A new process tells what ended its predecessor: the pause began when that was heard last.
    _delay(desk, failed, min(member.heard, desk.stamp) if 0 < member.epoch < epoch else desk.stamp)
    for one in claim:
        desk.claim(key, one)
    member.number, member.epoch, member.left = number, epoch, leave
    changed = key in group.dirty or leave or len(group.copies) != copies or group.facts.version != version
    if changed:
        group.dirty[key] = None
        desk.note()
    return changed


def finish(desk: Desk, key: Key | None, done: Iterable[Range]) -> None:
    """Record the finished ranges, independent of the present holders (GR19)."""
    group, lanes = desk.group, desk.lanes
    for one in done:
        part, log = one.part or 0, desk.topic.logs.get(one.log)
        lane, high = (part, one.log), one.high if log is None else min(one.high, log.end)
        if one.low >= high:
            continue
        for other in group.holders_of(part):
            if group.drop(other, lane, one.low, high) and other != key:
                desk.activity.took_from(other)
        lanes.finish(part, one.log, one.low, high)
        doubtful = sum(b - a for a, b, fact in group.facts.pieces(part, one.log, one.low, high) if fact.doubtful)
        if doubtful:
            desk.activity.count("done_after_release", doubtful)
        group.facts.forget(part, one.log, one.low, high)
        desk.activity.end_offers(group, lane, one.low, high, but=key)
        desk.activity.wake(part)
        desk.note()


def _begun(desk: Desk, key: Key, say: Say) -> list[tuple[Lane, int, int]]:
    """Count attempts (GR17, GR23), and move rejected records to the dead letters.

    Returns:
        The records that failed: lane, offset, and the timestamp at which they may come again; 0: by their attempts.
    """
    failed: list[tuple[Lane, int, int]] = []
    said: tuple[Tried | Later | Dead, ...] = (*say.tried, *say.later, *say.dead)
    for one in said:
        part = desk.part_at(one.log, one.offset)
        if part is None or not _is_its(desk, key, part, one.log, one.offset):
            continue
        lane = part, one.log
        mine = one.offset in desk.group.members[key].held.get(lane, ())
        new = not desk.group.facts.at(part, one.log, one.offset).attempts
        if new and not isinstance(one, Dead) and len(desk.group.facts) >= RETRIES_MAX:
            bury(desk, key, part, one.log, one.offset, TOO_MANY_RETRIES)
            continue

        def begun(fact: Fact, one: Tried | Later | Dead = one) -> Fact:
            more = max(0, one.attempts - fact.attempts)
            forgiven = fact.forgiven + (more if isinstance(one, Later) else 0)
            return fact._replace(attempts=fact.attempts + more, forgiven=forgiven)

        mine = mine or desk.group.facts.at(*lane, one.offset).attempts < one.attempts
        desk.group.facts.change(*lane, one.offset, one.offset + 1, begun)
        if isinstance(one, Dead):
            bury(desk, key, part, one.log, one.offset, one.reason)
        elif mine:  # A repeat does not put it off again.
            due = desk.stamp + one.delay_ms * 1000 if isinstance(one, Later) else 0
            failed.append((lane, one.offset, due))
    return failed


def _is_its(desk: Desk, key: Key, part: int, log: str, offset: int) -> bool:
    """Return True if the member holds a record, or it waits."""
    mine = desk.group.members[key].held.get((part, log))
    return (mine is not None and offset in mine) or desk.lanes.waits(part, log, offset)


def _return_rest(desk: Desk, key: Key, lane: Lane, low: int, high: int, named: Ranges) -> None:
    """Give back the claims in [low, high) that a member has not named (GR6)."""
    place = low
    for a, b in [*((max(a, low), min(b, high)) for a, b in named.get(lane, ()) if a < high and b > low), (high, high)]:
        for first, stop in desk.group.drop(key, lane, place, a) if place < a else ():
            desk.lanes.give_back(*lane, first, stop)
            desk.activity.wake(lane[0])
        place = max(place, b)


def _delay(desk: Desk, failed: Iterable[tuple[Lane, int, int]], since: int) -> None:
    """Let the failed records wait that went back.

    Args:
        since: the timestamp at which the pause of a failed attempt begins.
    """
    for (part, log), offset, due in failed:
        if not desk.lanes.waits(part, log, offset) or _is_offered(desk, part, log, offset):
            continue  # Another member has it, or is about to.
        fact = desk.group.facts.at(part, log, offset)
        used_up = fact.counted >= desk.group.row.attempts and not due
        at = 0 if used_up else due or since + backoff(fact.counted)
        desk.group.facts.change(part, log, offset, offset + 1, partial(_due, at))


def _due(at: int, fact: Fact) -> Fact:
    return fact._replace(due=at)


def _is_offered(desk: Desk, part: int, log: str, offset: int) -> bool:
    """Return True if a record is offered to a member."""
    for offer in desk.activity.offers.values():
        if offer.counts.get(part) or offset in offer.ranges.get((part, log), ()):
            return True
    return False


def _end_offer(desk: Desk, key: Key, say: Say) -> None:
    """End the offers to a member that it has not named."""
    offer = desk.activity.offers.get(key)
    if offer is None:
        return
    offer.blind = False
    named = ranges_of((*say.offered, *say.claim))
    if not desk.group.keyed:
        before = offer.records()
        offer.keep(named)
        if offer.records() < before:
            desk.activity.wake()
    else:
        for part, count in list(offer.counts.items()):
            left = min(count, desk.records(part, named))
            if left < count:
                desk.activity.wake(part)
            if left:
                offer.counts[part] = left
            else:
                del offer.counts[part]
    if not offer:
        del desk.activity.offers[key]
