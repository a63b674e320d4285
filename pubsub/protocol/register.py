"""The register of a store with a standby: its value, and the messages by which it is read and changed.

Proxies keep it, as a majority; members ask. PREPARE, ACCEPT, LOOK and ADMIT go from a member to a proxy and are
answered by VOTE; FORGET goes from one member to the other and is answered by itself. See docs/architecture.md, *The
register*. Messages are plain records, like those of `protocol.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pubsub.protocol.names import is_endpoint, is_hex, parse_number

MEMBERS_MAX: Final = 2
"""Members of a store."""

KINDS: Final = frozenset({"take", "resume", "hand", "drop", "add", "remove", "found"})
"""What an attempt is for; see `server.standby.register`."""


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


@dataclass(slots=True)
class Prepare:
    """PREPARE: promise to accept no lower ballot, and say what you accepted.

    Attributes:
        sender: the server's ID, which both members have.
        store: the ID of the store, which both members have.
        member: who asks.
        ballot: of the attempt.
        token: random, new with each attempt: an answer counts only for the one that asked.
        kind: what the attempt is for, of `KINDS`.
        sticky_ms: of a "take": a proxy that has heard the primary within so many milliseconds does not promise; 0, and
            more than its patience: within that.
    """

    sender: str
    store: str
    member: str
    ballot: int
    token: int
    kind: str
    sticky_ms: int = 0


@dataclass(slots=True)
class Accept:
    """ACCEPT: accept this view. Fields as in PREPARE."""

    sender: str
    store: str
    member: str
    ballot: int
    token: int
    view: View


@dataclass(slots=True)
class Look:
    """LOOK: what have you promised and accepted, and how long is the primary silent? Promises nothing.

    Attributes:
        token: random, given back with the answer.
    """

    sender: str
    store: str
    token: int


@dataclass(slots=True)
class Admit:
    """ADMIT: to a proxy that has no row for this store, the row that gives it its vote.

    Attributes:
        identity: of the routes file that is to take it: an older or newer one ignores it.
        promised: no lower ballot is to be accepted.
        ballot, view: what it is to have accepted.
    """

    sender: str
    store: str
    token: int
    identity: str
    promised: int
    ballot: int
    view: View


@dataclass(slots=True)
class Vote:
    """VOTE: a proxy's answer to PREPARE, ACCEPT, LOOK and ADMIT. Never answered.

    Attributes:
        sender: the proxy's ID.
        token: of the message that is answered.
        identity: of the proxy's routes file, made with it: one that was lost has another.
        promised: the highest ballot that was promised.
        ballot, view: what was accepted last; 0 and None: nothing.
        silence_ms: since the primary was heard here; -1: it was not, since this proxy started or its connection ended.
    """

    sender: str
    store: str
    outcome: VoteOutcome
    token: int
    identity: str
    promised: int = 0
    ballot: int = 0
    view: View | None = None
    silence_ms: int = -1


@dataclass(slots=True)
class Forget:
    """FORGET: from the primary to the other member: end what counts on answers of a proxy that lost its data since.

    Attributes:
        member: who sends this.
        identity: of that proxy's new routes file.
        done: 1: the answer; nothing counts on them any more.
    """

    sender: str
    store: str
    member: str
    identity: str
    done: int = 0
