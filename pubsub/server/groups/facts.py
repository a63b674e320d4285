"""The figures of groups, for DESCRIBE, reports and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pubsub.protocol.group_bodies import format_range
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.letters import is_full
from pubsub.server.state.state import State
from pubsub.server.topic.group import WAITING, Group, Key

RANGES_MAX: Final = 20
"""Most ranges of one member in an answer."""

NAMES_MAX: Final = 20
"""Most members that are named as in doubt."""

_KINDS: Final = ("dead", "doubt", "waiting")


def waiting_of(context: GroupContext) -> int:
    """Return the number of records that wait.

    Of a keyed group it is an estimate by the ranges of its parts; 0 is exact, once a member has asked. Parts in which
    nothing waits are left out: their ranges reach over the records of other parts until they are moved.
    """
    topic, group, activity = context.topic, context.group, context.activity
    copied = sum(1 for row in group.copies.values() if row.state == WAITING)
    if not group.keyed:
        return copied + topic.waiting(context.backlog.spans(0))
    parts: Iterable[int] = group.parts
    if activity.ready is not None and all(
        activity.seen.get(log.id, 1) >= log.end - log.unknown for log in topic.logs.values()
    ):
        parts = activity.ready
    spans = sum(topic.waiting(context.backlog.spans(part)) for part in parts)
    return copied + -(-spans // group.row.parts)


def group_facts(context: GroupContext, state: State) -> dict[str, Any]:
    """Return the values and figures of a group."""
    group, activity, liveness = context.group, context.activity, state.settings.member_liveness_seconds
    held = {key: member for key, member in group.members.items() if member.held}
    counts = {key: _claimed(context, key) for key in held}
    silent = [key for key in held if not activity.is_heard(key, context.now, liveness)]
    return {
        "name": group.name,
        "number": group.row.number,
        **group.values._asdict(),
        "full": is_full(group),
        "waiting": waiting_of(context),
        "offered": sum(offer.records() for offer in activity.offers.values()),
        "claimed": sum(counts.values()),
        "in_doubt": sum(counts[key] for key in silent),
        "in_doubt_members": len(silent),
        "in_doubt_names": silent[:NAMES_MAX],
        "in_doubt_seconds": max((round(activity.silence(key, context.now), 3) for key in silent), default=None),
        "delayed": sum(high - low for _, _, low, high, _ in group.facts.delayed(context.stamp)),
        "dead_letters": group.dead,
        "dead_letter_bytes": group.copied_bytes,
        "members": len(group.members),
        "members_heard": sum(activity.is_heard(key, context.now, liveness) for key in group.members),
        "hungry": sum(1 for poll in activity.polls.values() if poll.work.records_max),
        "counts": dict(sorted(activity.counts.items())),
        "held_seconds_max": max(
            (round(context.now - activity.held_since[key], 3) for key in held if key in activity.held_since),
            default=None,
        ),
    }


def _claimed(context: GroupContext, key: Key) -> int:
    """Return the number of records that a member has claimed; of a keyed group, at most the offsets of its ranges."""
    return sum(high - low for _, _, low, high in context.group.members[key].pieces())


def members_of(context: GroupContext, state: State, after: str, most: int) -> dict[str, Any]:
    """Return some members.

    Args:
        after: the last one that was shown, as `client/store`; "": none was.
        most: limit of the members.
    """
    group, activity, liveness = context.group, context.activity, state.settings.member_liveness_seconds
    client, _, store = after.partition("/")
    keys = [key for key in sorted(group.members) if key > (client, store)]
    out = []
    for key in keys[:most]:
        member, heard = group.members[key], activity.is_heard(key, context.now, liveness)
        pieces = list(member.pieces())
        claimed = sum(context.count(*piece) for piece in pieces)
        offer = activity.offers.get(key)
        since = activity.held_since.get(key)
        out.append(
            {
                "client": key[0],
                "store": key[1],
                "number": member.number,
                "heard_seconds": round(activity.silence(key, context.now), 3) if key in activity.heard else None,
                "heard": heard,
                "left": member.left,
                "claimed": claimed,
                "offered": offer.records() if offer is not None else 0,
                "in_doubt": 0 if heard else claimed,
                "ranges": [format_range(group.shown(*piece)) for piece in pieces[:RANGES_MAX]],
                "held_seconds": round(context.now - since, 3) if since is not None and pieces else None,
            }
        )
    return {"members": out, "more": len(keys) > most}


def dead_of(group: Group, after: str, most: int) -> dict[str, Any]:
    """Return some of the records that were copied out of their logs; the arguments are as in `members_of`."""
    rows = list(group.copies.values())
    places = [f"{row.log}.{row.offset}" for row in rows]
    begin = places.index(after) + 1 if after in places else 0
    some = rows[begin : begin + most]
    out = [
        {
            "id": f"{row.log}.{row.offset}",
            "publisher": row.publisher,
            "counter": row.counter,
            "stamp": row.stamp,
            "reason": row.reason,
            "attempts": row.attempts,
            "bytes": row.size,
            "kind": _KINDS[row.state],
        }
        for row in some
    ]
    return {"dead": out, "more": begin + most < len(rows)}
