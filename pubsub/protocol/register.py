"""The register of a store with a standby: its value, and the messages that read and change it.

A majority of the proxies keeps the value. Members send PREPARE, ACCEPT, LOOK and ADMIT to proxies, which answer with
VOTE. A member sends FORGET to the other member, which answers with FORGET. See docs/explanation/register.md.
Messages are plain records, like those of `protocol.messages`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pubsub.protocol.fields import Flag, Hex, Id, Kind, Number, one_of
from pubsub.protocol.names import is_endpoint, is_hex, parse_number
from pubsub.protocol.wire import message

MEMBERS_MAX: Final = 2
"""Limit of members of a store."""

KINDS: Final = ("takeover", "resume", "handover", "remove_from_sync", "add_to_sync", "remove", "bootstrap")
"""The purposes of an attempt; see `server.standby.election.proposer`."""

WRITTEN_KINDS: Final = {
    "takeover": "take",
    "handover": "hand",
    "remove_from_sync": "drop",
    "add_to_sync": "add",
    "bootstrap": "found",
}
"""The texts that this release writes for renamed kinds."""


class View(NamedTuple):
    """The value of a register: the primary, and the members that must acknowledge.

    Attributes:
        term: the term of the primary. Each start of a primary is a new term, numbered by its ballot.
        primary: the ID of the member that serves.
        address: the address of the primary for the other member.
        members: the IDs of all members of the store, sorted.
        in_sync: the IDs of the members that have all answered entries, sorted.
    """

    term: int
    primary: str
    address: str
    members: tuple[str, ...]
    in_sync: tuple[str, ...]

    def fault(self) -> str:
        """Return the reason why no member can have proposed this view, in a few words; "" if there is none."""
        known = set(self.members)
        if not 1 <= len(self.members) <= MEMBERS_MAX or not all(map(is_hex, self.members)):
            return f"not 1 to {MEMBERS_MAX} members"
        if list(self.members) != sorted(known) or list(self.in_sync) != sorted(set(self.in_sync)):
            return "members not sorted, or named twice"
        if self.primary not in self.in_sync or not known.issuperset(self.in_sync):
            return "a primary that is not in sync, or a process in sync that is no member"
        if not isinstance(self.address, str) or not is_endpoint(self.address):
            return "not an address"
        return ""


def format_view(view: View) -> str:
    """Return a view as one word: `term/primary/members/in sync/address`, members separated by commas."""
    return f"{view.term}/{view.primary}/{','.join(view.members)}/{','.join(view.in_sync)}/{view.address}"


def parse_view(word: str) -> View:
    """Return the view that `format_view` wrote.

    Raises:
        ValueError: the word is no view.
    """
    term, primary, members, in_sync, address = [*word.split("/", 4), "", "", "", ""][:5]
    view = View(parse_number(term), primary, address, tuple(members.split(",")), tuple(in_sync.split(",")))
    if fault := view.fault():
        raise ValueError(f"{fault}: {word[:100]!r}")
    return view


class VoteOutcome(StrEnum):
    """A proxy's answer about a ballot."""

    PROMISED = "promised"  # to PREPARE: no lower ballot will be accepted here
    ACCEPTED = "accepted"  # to ACCEPT
    REFUSED = "refused"  # a higher ballot was promised
    PRIMARY_ALIVE = "primary-alive"  # to PREPARE: the primary is alive here, so a takeover gets no promise
    REPORTED = "reported"  # to LOOK and ADMIT: the contents of the row
    NEW = "new"  # there is no row for this store, so this proxy has no vote
    FULL = "full"  # to ADMIT: there is no room for another row


WRITTEN_OUTCOMES: Final = {VoteOutcome.PRIMARY_ALIVE: "heard", VoteOutcome.REPORTED: "told"}
"""The texts that this release writes for renamed outcomes, in a VOTE and in reports."""

_VIEW: Final = Kind("a view", parse_view, format_view)


@message("PREPARE", positional=2)
@dataclass(slots=True)
class Prepare:
    """Ask for a promise to accept no lower ballot, and for the accepted view."""

    sender: Id
    """The server's ID, which both members have."""
    store: Hex
    """The ID of the store, which both members have."""
    member: Hex
    """The member that sends this."""
    ballot: Number
    """The ballot of the attempt."""
    token: Number
    """Random, new with each attempt. An answer counts only for the attempt that asked."""
    kind: Annotated[str, one_of("a kind of attempt", KINDS, WRITTEN_KINDS)]
    """The purpose of the attempt."""
    sticky_ms: Annotated[Number, "sticky"] = 0
    """For a takeover: a proxy that received a message of the primary within this time does not promise. 0, or more than
    the proxy's liveness: within that liveness."""


@message("ACCEPT", positional=2)
@dataclass(slots=True)
class Accept:
    """Ask to accept this view. Fields as in PREPARE."""

    sender: Id
    store: Hex
    member: Hex
    ballot: Number
    token: Number
    view: Annotated[View, _VIEW]


@message("LOOK", positional=2)
@dataclass(slots=True)
class Look:
    """Ask for the promised ballot, the accepted view and the silence of the primary. Requires no promise."""

    sender: Id
    store: Hex
    token: Number
    """Random, returned with the answer."""


@message("ADMIT", positional=2)
@dataclass(slots=True)
class Admit:
    """To a proxy without a row for this store: the row that gives it a vote."""

    sender: Id
    store: Hex
    token: Number
    identity: Hex
    """The identity of the routes file that may take it. An older or newer file ignores it."""
    promised: Number
    """The proxy must accept no lower ballot."""
    ballot: Number
    """The ballot of the accepted view."""
    view: Annotated[View, _VIEW]
    """The view that counts as accepted."""


@message("VOTE", positional=3)
@dataclass(slots=True)
class Vote:
    """A proxy's answer to PREPARE, ACCEPT, LOOK and ADMIT. It is never answered."""

    sender: Id
    """The proxy's ID."""
    store: Hex
    outcome: Annotated[VoteOutcome, one_of("a vote", VoteOutcome, WRITTEN_OUTCOMES)]
    token: Number
    """The token of the message that is answered."""
    identity: Hex
    """The random identity of the proxy's routes file. A new file after a loss has another."""
    promised: Number = 0
    """The highest promised ballot."""
    ballot: Number = 0
    """The ballot of the last accepted view; 0: none was accepted."""
    view: Annotated[View | None, _VIEW] = None
    """The last accepted view."""
    silence_ms: Annotated[Number, "silence"] = -1
    """Milliseconds since the last message of the primary here; -1: none since this proxy started or that connection
    ended."""


@message("FORGET", positional=2)
@dataclass(slots=True)
class Forget:
    """From the primary to the other member: a proxy has lost its data, so drop results that rest on its old answers."""

    sender: Id
    store: Hex
    member: Hex
    """The member that sends this."""
    identity: Hex
    """The identity of that proxy's new routes file."""
    done: Flag = 0
    """1: the answer; no result rests on those answers any more."""
