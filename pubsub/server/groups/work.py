"""The body of a member's WORK, and the changes that it makes (docs/reference/wire.md, *WORK*).

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
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.letters import TOO_MANY_RETRIES, dead_letter, explained
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


def apply_work(context: GroupContext, key: Key, say: Say, number: int, epoch: int, *, cut: bool, leave: bool) -> bool:
    """Apply a WORK with a number above the member's highest one.

    Returns:
        True if something changed that has to be stored.
    """
    group = context.group
    member = group.member(key)
    version, copies = group.facts.version, len(group.copies)
    finish(context, key, say.done)
    if cut:
        for part, log, low, high in list(member.pieces()):
            group.facts.change(part, log, low, high, lambda fact: fact._replace(attempts=fact.attempts + 1))
    claim = () if leave else say.claim
    named = ranges_of((*say.keep, *claim))
    failed = _begun(context, key, say)
    for part, log, low, high in list(member.pieces()):
        _return_rest(context, key, (part, log), low, high, named)
    _end_offer(context, key, Say() if leave else say)
    # A new process tells what ended its predecessor: the pause began when that was heard last.
    _delay(context, failed, min(member.heard, context.stamp) if 0 < member.epoch < epoch else context.stamp)
    for one in claim:
        context.claim(key, one)
    member.number, member.epoch, member.left = number, epoch, leave
    changed = key in group.dirty or leave or len(group.copies) != copies or group.facts.version != version
    if changed:
        group.dirty[key] = None
        context.note()
    return changed


def give_back_all(context: GroupContext, key: Key, say: Say, *, cut: bool) -> None:
    """Give back all that a silent member has, as its next process would: its attempts count, and nothing is kept."""
    member = context.group.members[key]
    number, epoch = member.number, member.epoch
    apply_work(context, key, Say(tried=say.tried), number, epoch + 1, cut=cut, leave=False)
    member.epoch = epoch


def finish(context: GroupContext, key: Key | None, done: Iterable[Range]) -> None:
    """Record the finished ranges, independent of the present holders (GR19)."""
    group, backlog = context.group, context.backlog
    for one in done:
        part, log = one.part or 0, context.topic.logs.get(one.log)
        lane, high = (part, one.log), one.high if log is None else min(one.high, log.end)
        if one.low >= high:
            continue
        for other in group.holders_of(part):
            if group.drop(other, lane, one.low, high) and other != key:
                context.activity.took_from(other)
        backlog.finish(part, one.log, one.low, high)
        doubtful = sum(b - a for a, b, fact in group.facts.pieces(part, one.log, one.low, high) if fact.doubtful)
        if doubtful:
            context.activity.count("done_after_release", doubtful)
        group.facts.forget(part, one.log, one.low, high)
        context.activity.end_offers(group, lane, one.low, high, but=key)
        context.activity.wake(part)
        context.note()


def _begun(context: GroupContext, key: Key, say: Say) -> list[tuple[Lane, int, int]]:
    """Count attempts (GR17, GR23), and move rejected records to the dead letters.

    Returns:
        The records that failed: lane, offset, and the timestamp at which they may come again; 0: by their attempts.
    """
    failed: list[tuple[Lane, int, int]] = []
    said: tuple[Tried | Later | Dead, ...] = (*say.tried, *say.later, *say.dead)
    for one in said:
        part = context.part_at(one.log, one.offset)
        if part is None:
            continue
        lane = part, one.log
        its = _is_its(context, key, part, one.log, one.offset)
        if not its and not _is_claimed(context, part, one.log, one.offset):
            continue
        mine = one.offset in context.group.members[key].held.get(lane, ())
        new = not context.group.facts.at(part, one.log, one.offset).attempts
        if new and not isinstance(one, Dead) and len(context.group.facts) >= RETRIES_MAX:
            if its:
                reason = explained(TOO_MANY_RETRIES, _error(one))
                dead_letter(context, key, part, one.log, one.offset, reason)
            continue

        def begun(fact: Fact, one: Tried | Later | Dead = one) -> Fact:
            more = max(0, one.attempts - fact.attempts)
            forgiven = fact.forgiven + (more if isinstance(one, Later) else 0)
            error = _error(one) if one.attempts >= fact.attempts else ""
            return fact._replace(attempts=fact.attempts + more, forgiven=forgiven, error=error or fact.error)

        mine = mine or context.group.facts.at(*lane, one.offset).attempts < one.attempts
        context.group.facts.change(*lane, one.offset, one.offset + 1, begun)
        if not its:  # It was given up meanwhile. The attempt counts, and the other member decides how it ends.
            continue
        if isinstance(one, Dead):
            dead_letter(context, key, part, one.log, one.offset, one.reason)
        elif mine:  # A repeat does not put it off again.
            due = context.stamp + one.delay_ms * 1000 if isinstance(one, Later) else 0
            failed.append((lane, one.offset, due))
    return failed


def _error(one: Tried | Later | Dead) -> str:
    return one.error if isinstance(one, Tried) else ""


def _is_its(context: GroupContext, key: Key, part: int, log: str, offset: int) -> bool:
    """Return True if the member holds a record, or it waits."""
    mine = context.group.members[key].held.get((part, log))
    return (mine is not None and offset in mine) or context.backlog.waits(part, log, offset)


def _is_claimed(context: GroupContext, part: int, log: str, offset: int) -> bool:
    """Return True if a member holds a record."""
    group = context.group
    return any(offset in group.members[key].held.get((part, log), ()) for key in group.holders_of(part))


def _return_rest(context: GroupContext, key: Key, lane: Lane, low: int, high: int, named: Ranges) -> None:
    """Give back the claims in [low, high) that a member has not named (GR6)."""
    place = low
    for a, b in [*((max(a, low), min(b, high)) for a, b in named.get(lane, ()) if a < high and b > low), (high, high)]:
        for first, stop in context.group.drop(key, lane, place, a) if place < a else ():
            context.backlog.give_back(*lane, first, stop)
            context.activity.wake(lane[0])
        place = max(place, b)


def _delay(context: GroupContext, failed: Iterable[tuple[Lane, int, int]], since: int) -> None:
    """Let the failed records wait that went back.

    Args:
        since: the timestamp at which the pause of a failed attempt begins.
    """
    for (part, log), offset, due in failed:
        if not context.backlog.waits(part, log, offset) or _is_offered(context, part, log, offset):
            continue  # Another member has it, or is about to.
        fact = context.group.facts.at(part, log, offset)
        used_up = fact.counted >= context.group.row.attempts and not due
        at = 0 if used_up else due or since + backoff(fact.counted)
        context.group.facts.change(part, log, offset, offset + 1, partial(_due, at))


def _due(at: int, fact: Fact) -> Fact:
    return fact._replace(due=at)


def _is_offered(context: GroupContext, part: int, log: str, offset: int) -> bool:
    """Return True if a record is offered to a member."""
    for offer in context.activity.offers.values():
        if offer.counts.get(part) or offset in offer.ranges.get((part, log), ()):
            return True
    return False


def _end_offer(context: GroupContext, key: Key, say: Say) -> None:
    """End the offers to a member that it has not named."""
    offer = context.activity.offers.get(key)
    if offer is None:
        return
    offer.blind = False
    named = ranges_of((*say.offered, *say.claim))
    if not context.group.keyed:
        before = offer.records()
        offer.keep(named)
        if offer.records() < before:
            context.activity.wake()
    else:
        for part, count in list(offer.counts.items()):
            left = min(count, context.records(part, named))
            if left < count:
                context.activity.wake(part)
            if left:
                offer.counts[part] = left
            else:
                del offer.counts[part]
    if not offer:
        del context.activity.offers[key]
