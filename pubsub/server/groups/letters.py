"""Dead letters, releases, and records copied out of their log (docs/explanation/groups.md, GR11, GR17 and GR20).

A dead letter is a copy of its record, so that it does not hold the log. It keeps its position, and its
attempts. A redrive lets it wait again, and its copy stays until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from pubsub.errors import TooLarge
from pubsub.protocol.batch import (
    DELAYED,
    Buffer,
    batch_ends,
    batch_tables,
    data_start,
    encode_batch,
    origin_of,
    with_origin,
)
from pubsub.protocol.names import Position
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.scan import Run
from pubsub.server.topic.facts import Fact
from pubsub.server.topic.group import DEAD, HELD, WAITING, Group, Key
from pubsub.server.topic.group_rows import CopyKept, CopyRow, MemberGone

DEAD_LETTERS_MAX: Final = 10_000
"""Copies of one group. Beyond it nothing more is claimed, and an operator has to look at the dead letters."""

DEAD_LETTERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same limit for their bytes."""

LOSSES_MAX: Final = 10
"""Members that may go silent with a record as the first one of their offer; then it is a dead letter."""

USED_UP: Final = "attempts_used_up"
LOST_TOO_OFTEN: Final = "its_members_went_silent"
TOO_MANY_RETRIES: Final = "RETRIES_MAX"


def is_full(group: Group) -> bool:
    """Return True if no copy has room."""
    return len(group.copies) >= DEAD_LETTERS_MAX or group.copied_bytes >= DEAD_LETTERS_BYTES_MAX


def single(body: Buffer, index: int) -> bytes:
    """Return a batch with one record of a checked batch, and with its publisher if it was delayed."""
    ends = batch_ends(body)
    start = data_start(len(ends))
    first = ends[index - 1] if index else 0
    metadata: list[list[bytes]] = []
    for values, place in batch_tables(body):
        low = values[index - 1] if values and index else 0
        metadata.append([bytes(body[place + low : place + values[index]])] if values else [])
    alone = encode_batch([bytes(body[start + first : start + ends[index]])], metadata[0], metadata[1])
    origin = origin_of(body) if body[1] & DELAYED else None
    return alone if origin is None else with_origin(alone, origin[0], origin[1] + index)


def _copy(context: GroupContext, run: Run, state: int, reason: str = "") -> bool:
    """Copy the first record of a run out of its log; return False if it cannot be read, or there is no room."""
    group = context.group
    if run.batch is None or run.batch.body is None or is_full(group):
        return False
    try:
        body = single(run.batch.body, run.first)
    except TooLarge:  # It fills a batch without its table; it stays in the log.
        return False
    attempts = group.facts.at(run.part, run.log, run.low).attempts
    facts = run.publisher, run.counter, run.batch.stamp, len(body), attempts, reason, context.stamp
    row = CopyRow(run.part, run.log, run.low, state, *facts)
    group.keep_copy(row)
    context.topic.dirty.row(context.topic.name, CopyKept(context.topic.number, group.name, row, body))
    return True


def explained(reason: str, error: str) -> str:
    """Return a reason of the server with the error of the last failed attempt."""
    return f"{reason}%3A%20{error}" if error else reason


def dead_letter(context: GroupContext, key: Key | None, part: int, log: str, offset: int, reason: str) -> bool:
    """Make a record a dead letter. It waits, or the member with this key holds it.

    Returns:
        False if it cannot be read, or the letters are full. It then stays where it is.
    """
    group, activity = context.group, context.activity
    row = group.copies.get((log, offset))
    if row is None:
        run = next(context.scan().held(part, log, offset, offset + 1), None)
        if run is None or not _copy(context, run, DEAD, reason):
            return False
    else:
        attempts = group.facts.at(part, log, offset).attempts
        context.backlog.set_copy(replace(row, state=DEAD, reason=reason, attempts=attempts, died=context.stamp))
    if key is not None:
        group.drop(key, (part, log), offset, offset + 1)
    context.backlog.pass_over(part, [(log, offset, offset + 1)])
    group.facts.change(part, log, offset, offset + 1, lambda fact: fact._replace(due=0))
    activity.end_offers(group, (part, log), offset, offset + 1)
    activity.count("dead_letters")
    context.note()
    return True


def is_dead(group: Group, fact: Fact) -> str:
    """Return the reason why a record with these facts becomes a dead letter; "" if it does not."""
    if fact.counted >= group.row.attempts:
        return explained(USED_UP, fact.error)
    return explained(LOST_TOO_OFTEN, fact.error) if fact.losses >= LOSSES_MAX else ""


def redrive(context: GroupContext, places: Iterable[Position]) -> int:
    """Let dead letters wait again, with no attempt that counts, and return their number (GR23)."""
    group, number = context.group, 0
    for row in _dead(group, places):
        context.backlog.set_copy(replace(row, state=WAITING))
        group.facts.change(
            row.part, row.log, row.offset, row.offset + 1,
            lambda fact: fact._replace(forgiven=fact.attempts, losses=0, due=0, error=""),
        )  # fmt: skip
        context.activity.wake(row.part)
        number += 1
    if number:
        context.activity.look = True
        context.note()
    return number


def drop(context: GroupContext, places: Iterable[Position]) -> int:
    """Delete dead letters, and return their number."""
    group, number = context.group, 0
    for row in _dead(group, places):
        context.backlog.drop_copy(row.log, row.offset)
        group.facts.forget(row.part, row.log, row.offset, row.offset + 1)
        number += 1
    if number:
        context.activity.look = True
        context.note()
    return number


def _dead(group: Group, places: Iterable[Position]) -> list[CopyRow]:
    """Return the dead letters at these positions; all if there is none."""
    wanted = list(dict.fromkeys(places)) or list(group.copies)
    rows = (group.copies.get(place) for place in wanted)
    return [row for row in rows if row is not None and row.state == DEAD]


def release(context: GroupContext, key: Key, *, forget: bool = False) -> int:
    """Give up the claims of a member: the records wait again, with the mark (GR11).

    Args:
        forget: the member's directory is lost, so the member is forgotten.

    Returns:
        The number of records.
    """
    group, number = context.group, 0
    member = group.members[key]
    for part, log, low, high in list(member.pieces()):
        number += context.count(part, log, low, high)
        group.drop(key, (part, log), low, high)
        group.facts.change(part, log, low, high, lambda fact: fact._replace(doubtful=True, due=0))
        context.backlog.give_back(part, log, low, high)
        context.activity.wake(part)
    context.activity.held_since.pop(key, None)
    context.activity.took_from(key)
    context.activity.look = True
    context.activity.count("released", number)
    if forget:
        context.activity.forget(key)
        group.forget(key)
        group.dirty.pop(key, None)
        context.topic.dirty.row(context.topic.name, MemberGone(context.topic.number, group.name, *key))
    context.note()
    return number


def copy_out(context: GroupContext, key: Key, records: int) -> int:
    """Copy records out of their logs that a silent member holds, so that they do not hold the logs (GR20).

    Args:
        records: most records in one call.

    Returns:
        The number of copied records; 0: there is none left, or no room.
    """
    group, number = context.group, 0
    for part, log, low, high in list(group.members[key].pieces()):
        copied = [run.low for run in context.scan().held(part, log, low, high) if run.copy is not None]
        for run in context.scan().held(part, log, low, high):
            for offset in range(run.low, run.high) if run.copy is None else ():
                if number >= records or not _copy(context, run._replace(low=offset, high=offset + 1), HELD):
                    return number
                copied.append(offset)
                number += 1
        # Only the copied offsets are held from now on: the range may reach over records of other parts.
        group.drop(key, (part, log), low, high)
        for offset in copied:
            group.hold(key, (part, log), offset, offset + 1)
        context.note()
    return number
