"""The messages of consumer groups (docs/explanation/groups.md). SUBSCRIBE makes a group or joins one."""

from dataclasses import dataclass
from typing import Annotated, Final

from pubsub.base.limits import ATTEMPTS_MAX, PARTS_MAX
from pubsub.protocol.fields import Action, Body, Contents, Flag, Hex, Id, Number, Topic, Word, one_of, within
from pubsub.protocol.group_bodies import KEYED, NOTHING, REDELIVER, SHARED, WAIT, Say, join_say, split_say
from pubsub.protocol.wire import message

ANY: Final = "any"
"""A SUBSCRIBE takes the group as it is."""

Joined = Annotated[str, one_of("a mode of a group", (ANY, SHARED, KEYED))]
Mode = Annotated[str, one_of("shared or keyed", (SHARED, KEYED))]
OnLost = Annotated[str, one_of("wait or redeliver", (WAIT, REDELIVER))]
Parts = Annotated[int, within(0, PARTS_MAX)]
Attempts = Annotated[int, within(0, ATTEMPTS_MAX)]
Said = Annotated[
    Say,
    Body("lines of work", join_say, split_say),
]


@message("WORK", positional=2)
@dataclass(slots=True)
class Work:
    """A member of a group says all about its work: finished ranges, kept ones, and how much more it wants.

    Claims that it does not name go back. The STATUS has all its claims and offers then, and the records that it did not
    name."""

    sender: Id
    topic: Topic
    group: Annotated[Id, "name"]
    """The group."""
    subscription: Number
    """The number of the group, as SUBSCRIBE was answered."""
    number: Number
    """The number of this message, from the client's allocator. An answer to an earlier one does not count."""
    store: Hex
    """The member's store ID. It and the sender together are the member."""
    epoch: Annotated[Number, "opening", "epoch"]
    """The first number of the client's present session."""
    records_max: Annotated[Number, "max"] = 0
    """Limit of the records that it wants besides those that it names."""
    bytes_max: Annotated[Number, "bytes"] = 0
    """Limit of their bytes; 0: the server's."""
    wait_ms: Annotated[Number, "wait"] = 0
    """Milliseconds that the server may wait for something to give, or to take away."""
    claim: Flag = 0
    """1: records may be claimed for the member at once. 0: they are offered."""
    cut: Flag = 0
    """1: the member's host started without a clean end before, so all that it had claimed counts as begun."""
    leave: Flag = 0
    """1: the last message of this process. It gets nothing, and neither does an earlier one that waits."""
    log: Hex = ""
    avoid: Hex = ""
    database: Hex = ""
    """Identifies the database with the member's state, which members may share; "": no other member can look there."""
    settles: Annotated[Word, "!settles"] = ""
    """Another member, as `client/store`, that the sender has looked up in their database. The body then has the `done`
    and `tried` of that member, and `number` is its number. The rest of its claims goes back."""
    say: Said = NOTHING


@message("DESCRIBE", positional=2)
@dataclass(slots=True)
class Describe:
    """Ask for the groups of a topic. The body of the STATUS has JSON."""

    sender: Id
    topic: Topic
    what: Annotated[str, one_of("groups, members or dead", ("groups", "members", "dead"))] = "groups"
    """`groups`: of each its values and figures. `members`: those of one group. `dead`: its dead letters."""
    name: Id = ""
    """The group; "": all groups, only with `groups`."""
    after: Word = ""
    """The member, as `client/store`, or the dead letter after which the answer begins."""
    items_max: Annotated[Number, "max"] = 0
    """Limit of the items in the answer; 0: the server's."""
    log: Hex = ""
    avoid: Hex = ""


@message("GROUP", positional=3)
@dataclass(slots=True)
class Group:
    """An operator's action on a group."""

    sender: Id
    topic: Topic
    action: Action
    """release, redrive, drop, end, resume or change."""
    name: Id
    """The group."""
    subscription: Number
    """The number of the group, so that a late repeat of this request does not change a later group."""
    member: Id = ""
    """With `release`: the member's client."""
    store: Hex = ""
    """With `release`: the member's store."""
    number: Number = 0
    """With `release`: the member's number, as DESCRIBE shows it. Of a member that went on nothing is released."""
    lost_disk: Annotated[Flag, "lostdisk"] = 0
    """With `release`, 1: the member's state directory is lost, and the member is forgotten."""
    skip: Flag = 0
    """With `resume`, 1: pass over all waiting records. 0: hand it out, marked as doubtful."""
    force: Flag = 0
    """1: also while the member sends messages, or while a member has claims that nobody knows the end of."""
    mode: Mode = ""
    """With `change`, as in SUBSCRIBE."""
    parts: Parts = 0
    on_lost: Annotated[OnLost, "onlost"] = ""
    lost_ms: Annotated[Number, "lost"] = 0
    attempts: Attempts = 0
    log: Hex = ""
    avoid: Hex = ""
    places: Contents = b""
    """With `redrive` and `drop`: positions, separated by spaces; empty: all."""
