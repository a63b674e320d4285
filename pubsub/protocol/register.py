"""The register of a store with a standby: its value, and the messages by which it is read and changed.

Proxies keep it, as a majority; members ask. PREPARE, ACCEPT, LOOK and ADMIT go from a member to a proxy and are
answered by VOTE; FORGET goes from one member to the other and is answered by itself. See docs/architecture.md, *The
register*. Messages are plain records, like those of `protocol.messages`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pubsub.protocol.fields import Flag, Hex, Id, Kind, Number, one_of
from pubsub.protocol.names import is_endpoint, is_hex, parse_number
from pubsub.protocol.wire import message

MEMBERS_MAX: Final = 2
"""Members of a store."""

KINDS: Final = ("take", "resume", "hand", "drop", "add", "remove", "found")
"""What an attempt is for; see `server.standby.election.proposer`."""


class View(NamedTuple):
    """The value of a register: who is primary, and who must acknowledge.

    Attributes:
        term: of the primary; every start of one is a new term, and so is its ballot.
        primary: the ID of the member that serves.
        address: where the other member reaches it.
        members: the IDs of all that belong to the store, sorted.
        in_sync: the IDs of those that have all that was answered, sorted.
    """

    term: int
    primary: str
    address: str
    members: tuple[str, ...]
    in_sync: tuple[str, ...]

    def fault(self) -> str:
        """What no member would propose, in a few words; "" where there is nothing."""
        known = set(self.members)
        if not 1 <= len(self.members) <= MEMBERS_MAX or not all(map(is_hex, self.members)):
            return f"not 1 to {MEMBERS_MAX} members"
        if list(self.members) != sorted(known) or list(self.in_sync) != sorted(set(self.in_sync)):
            return "members not sorted, or named twice"
        if self.primary not in self.in_sync or not known.issuperset(self.in_sync):
            return "a primary that is not in sync, or who is in sync and no member"
        if not isinstance(self.address, str) or not is_endpoint(self.address):
            return "not an address"
        return ""


def format_view(view: View) -> str:
    """A view as one word: `term/primary/members/in sync/address`, members separated by commas."""
    return f"{view.term}/{view.primary}/{','.join(view.members)}/{','.join(view.in_sync)}/{view.address}"


def parse_view(word: str) -> View:
    """The view that `format_view` wrote.

    Raises:
        ValueError: the word is something else.
    """
    term, primary, members, in_sync, address = [*word.split("/", 4), "", "", "", ""][:5]
    view = View(parse_number(term), primary, address, tuple(members.split(",")), tuple(in_sync.split(",")))
    if fault := view.fault():
        raise ValueError(f"{fault}: {word[:100]!r}")
    return view


class VoteOutcome(StrEnum):
    """What a proxy says of a ballot."""

    PROMISED = "promised"  # to PREPARE: no lower ballot will be accepted here
    ACCEPTED = "accepted"  # to ACCEPT
    REFUSED = "refused"  # a higher ballot was promised
    HEARD = "heard"  # to PREPARE: the primary is heard here, which is not helped to be replaced
    TOLD = "told"  # to LOOK and ADMIT: what is here
    NEW = "new"  # there is no row for this store: this proxy has no vote
    FULL = "full"  # to ADMIT: there is no room for a row more


_VIEW: Final = Kind("a view", parse_view, format_view)


@message("PREPARE", positional=2)
@dataclass(slots=True)
class Prepare:
    """Promise to accept no lower ballot, and say what you accepted."""

    sender: Id
    """The server's ID, which both members have."""
    store: Hex
    """The ID of the store, which both members have."""
    member: Hex
    """The member that asks."""
    ballot: Number
    """Of the attempt."""
    token: Number
    """Random, new with each attempt: an answer counts only for the attempt that asked."""
    kind: Annotated[str, one_of("a kind of attempt", KINDS)]
    """The purpose of the attempt."""
    sticky_ms: Annotated[Number, "sticky"] = 0
    """Of a "take": a proxy that has heard the primary within so many milliseconds does not promise; 0, and more than
    the proxy's patience: within that patience."""


@message("ACCEPT", positional=2)
@dataclass(slots=True)
class Accept:
    """Accept this view. Fields as in PREPARE."""

    sender: Id
    store: Hex
    member: Hex
    ballot: Number
    token: Number
    view: Annotated[View, _VIEW]


@message("LOOK", positional=2)
@dataclass(slots=True)
class Look:
    """What have you promised and accepted, and how long is the primary silent? Promises nothing."""

    sender: Id
    store: Hex
    token: Number
    """Random, given back with the answer."""


@message("ADMIT", positional=2)
@dataclass(slots=True)
class Admit:
    """To a proxy that has no row for this store, the row that gives it its vote."""

    sender: Id
    store: Hex
    token: Number
    identity: Hex
    """Of the routes file that is to take it: an older or newer one ignores it."""
    promised: Number
    """No lower ballot is to be accepted."""
    ballot: Number
    """Of the accepted view."""
    view: Annotated[View, _VIEW]
    """It is to have accepted this view."""


@message("VOTE", positional=3)
@dataclass(slots=True)
class Vote:
    """A proxy's answer to PREPARE, ACCEPT, LOOK and ADMIT. Never answered."""

    sender: Id
    """The proxy's ID."""
    store: Hex
    outcome: Annotated[VoteOutcome, one_of("what a proxy says of a ballot", VoteOutcome)]
    token: Number
    """Of the message that is answered."""
    identity: Hex
    """Of the proxy's routes file, made with it: a file that was lost has another."""
    promised: Number = 0
    """The highest ballot that was promised."""
    ballot: Number = 0
    """Of the last accepted view; 0: none was accepted."""
    view: Annotated[View | None, _VIEW] = None
    """The last accepted view."""
    silence_ms: Annotated[Number, "silence"] = -1
    """Since the primary was heard here; -1: it was not, since this proxy started or its connection ended."""


@message("FORGET", positional=2)
@dataclass(slots=True)
class Forget:
    """From the primary to the other member: end what counts on answers of a proxy that lost its data since."""

    sender: Id
    store: Hex
    member: Hex
    """The member that sends this."""
    identity: Hex
    """Of that proxy's new routes file."""
    done: Flag = 0
    """1: the answer; nothing counts on them any more."""
