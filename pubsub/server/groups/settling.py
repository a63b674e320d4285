"""Settle the claims of a silent member by a member with the same database (docs/explanation/group-databases.md).

    a member is silent · a WORK of another one with the same database is answered with `silent` · that member looks it
    up · its WORK `settles` the silent member: done, attempts, and the rest goes back

Nothing here is remembered on disk. A look that is lost is asked for again after a time, of any such member.
"""

from __future__ import annotations

from typing import Final

from pubsub.protocol.groups import Work
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.work import finish, give_back_all
from pubsub.server.topic.group import Key

LOOK_SECONDS: Final = 5.0
"""Time for which one member is trusted to look a silent one up, before a member is told again."""


def settled_key(work: Work) -> Key:
    """Return the member that a WORK settles."""
    client, _, store = work.settles.partition("/")
    return client, store


def note_database(context: GroupContext, key: Key, database: str) -> None:
    """Keep the database that a member names."""
    member = context.group.members[key]
    if member.database != database:
        member.database = database
        context.group.dirty[key] = None
        context.note()


def settle(context: GroupContext, work: Work, *, heard: bool) -> tuple[str, int]:
    """Apply a WORK that settles another member.

    Args:
        heard: the other member is heard.

    Returns:
        The reason for which nothing goes back, "" if all that is not done did; and the number of records that did.
    """
    group, key = context.group, settled_key(work)
    looker, member = group.members.get((work.sender, work.store)), group.members.get(key)
    if member is None or not work.database or member.database != work.database:
        return "no_member_with_this_database", 0
    if looker is None or looker.database != work.database:
        return "no_such_database_of_the_sender", 0
    finish(context, key, work.say.done)  # Facts count however late they come (GR19).
    if member.number != work.number:
        return "the_member_went_on", 0
    if heard:
        return "the_member_is_heard", 0
    records = sum(context.count(*piece) for piece in member.pieces())
    give_back_all(context, key, work.say, cut=bool(work.cut))
    context.activity.looks.pop(key, None)
    context.activity.took_from(key)
    context.activity.count("settled")
    return "", records


def to_look_up(context: GroupContext, key: Key) -> str:
    """Return the silent member that another one is to look up, as `STATUS` has it, and note the look; "" for none."""
    members, looks = context.group.members, context.activity.looks
    for other in context.activity.silent:
        if _may_look(context, key, other):
            looks[other] = key, context.now
            return f"{other[0]}/{other[1]}/{members[other].number}"
    return ""


def note_silent(context: GroupContext) -> bool:
    """Note the silent members that others can look up, and let WORKs of those that wait be answered.

    Returns:
        True if there are such WORKs.
    """
    group, activity = context.group, context.activity
    activity.silent = [key for key, member in group.members.items() if member.database and _is_silent(context, key)]
    activity.looks = {key: look for key, look in activity.looks.items() if key in activity.silent}
    found = False
    for other in activity.silent:
        key = next((key for key in activity.polls if _may_look(context, key, other)), None)
        if key is not None:
            activity.polls[key].changed = activity.look = found = True
    return found


def _is_silent(context: GroupContext, key: Key) -> bool:
    return bool(context.group.members[key].held) and context.activity.silence(key, context.now) > context.liveness


def _may_look(context: GroupContext, key: Key, other: Key) -> bool:
    """Return True if a member may look up another one, which is still silent and which nobody looks up now."""
    asking, silent = context.group.members.get(key), context.group.members.get(other)
    if asking is None or silent is None or key == other or asking.database != silent.database:
        return False
    look = context.activity.looks.get(other)
    return _is_silent(context, other) and (look is None or context.now - look[1] >= LOOK_SECONDS)
