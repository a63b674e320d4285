"""Settle silent members with their state in the client's own database (docs/explanation/group-databases.md).

An answer to WORK names such a member. The session looks it up, and the core sends what was found as a WORK about that
member. If this message is lost, the server asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pubsub.base.limits import WORK_LINES_MAX
from pubsub.protocol.group_bodies import Range, Say, Tried
from pubsub.protocol.groups import Work
from pubsub.protocol.names import is_hex, is_id, parse_number

if TYPE_CHECKING:
    from pubsub.client.core.group_member import GroupMember


class Silent(NamedTuple):
    """A member to be looked up.

    Attributes:
        member: the membership of the client that looks.
        number: of the group.
        client, store: the silent member.
        said: the number of its last message, as the server has it.
    """

    member: GroupMember
    number: int
    client: str
    store: str
    said: int


class LookedUp(NamedTuple):
    """What a database has of a member, after the member's life in it has ended.

    Attributes:
        done: log, part and bounds of the finished ranges; the part is -1 in a shared group.
        begun: log, offset and number of each attempt.
        cut: the database may have lost commits of that life, so that all claims count as begun.
    """

    done: list[tuple[str, int, int, int]]
    begun: list[tuple[str, int, int]]
    cut: bool = False


def silent_member(member: GroupMember, number: int, text: str) -> list[Silent]:
    """Return the member that an answer names, in a list; an empty list if it names none."""
    words = text.split("/")
    if not member.database or len(words) != 3 or not is_id(words[0]) or not is_hex(words[1]):
        return []
    try:
        return [Silent(member, number, words[0], words[1], parse_number(words[2]))]
    except ValueError:
        return []


def settling(silent: Silent, found: LookedUp) -> Work | None:
    """Return the message that settles a member; None if one message cannot tell all that is done."""
    if len(found.done) + len(found.begun) > WORK_LINES_MAX:
        return None  # The rest would be given to another member as if it were not done.
    done = tuple(Range(log, low, high, None if part < 0 else part) for log, part, low, high in found.done)
    say = Say(done, tried=tuple(Tried(*one) for one in found.begun))
    member, other = silent.member, f"{silent.client}/{silent.store}"
    return Work(
        member.client, member.topic, member.name, silent.number, silent.said, member.store, 0,
        cut=int(found.cut), log=member.log, database=member.database, settles=other, say=say,
    )  # fmt: skip
