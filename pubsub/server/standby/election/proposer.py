"""The register of a store with two members, as one of them proposes to it (docs/architecture.md, *The register*).

Proxies keep the register as a majority; this is one member's side of a ballot (CASPaxos). *Attempts* change the view:

    take      a member in sync takes the place of a silent primary, and is alone in sync then: a new term
    resume    the primary has started again: a new term, who was in sync still is
    hand      a planned switch: the other member, which has all, becomes primary and both are in sync: a new term
    drop      the primary goes on without the other member
    add       the other member has all that was answered, and is to be waited for again
    remove    the other member is gone for good
    found     the first view of a register whose rows were just made (see `standby.election.acceptor_recovery`)

A take or a resume begins with a look, which binds nobody: whom the register does not name, or whose primary is heard,
asks for no ballot and hinders nobody. Then the ballot is prepared, the view worked out from what the proxies accepted,
and accepted; what a majority has accepted is chosen. A ballot that comes to nothing is followed by a random wait, a
long one for whom the register does not name, since two who try again at once would hinder each other for ever. A take
does not wait for what a resume was told: by then the register may name who asks, and a look comes first in any case.

Once a view was sent to be accepted it may be chosen, whatever becomes of the attempt. `required` names everybody who
may be in sync: the primary waits for all of them, until one of its proposals is known to be chosen. Any other member
has to see that it is not named: it looks, and later asks for one ballot although it is not, since its view may still be
under way to the proxies and comes too late then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub.base.limits import PROXIES_MAX
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, View, Vote, VoteOutcome

if TYPE_CHECKING:
    from random import Random

ATTEMPT_BEATS: Final = 1.4
"""Heartbeats after which an attempt has come to nothing."""

WAIT_BEATS: Final = 0.5
"""Heartbeats until the next attempt, at least."""

NAMELESS_WAIT_BEATS: Final = 6.0
"""The same for a member that the register does not name; but for a take, which asks for no ballot then."""

SPREAD_BEATS: Final = 4.0
"""Heartbeats of the random part of either wait, at most; who only looked to take over has none."""

_LOOKS_FIRST: Final = frozenset({"take", "resume"})
_FORGOTTEN_MAX: Final = PROXIES_MAX


@dataclass(frozen=True, slots=True)
class Identity:
    """Who proposes.

    Attributes:
        server, store: IDs that both members have.
        member: the member's own.
        address: where the other member reaches it.
    """

    server: str
    store: str
    member: str
    address: str


class Chosen(NamedTuple):
    """An attempt's view was chosen."""

    kind: str
    view: View


class Ended(NamedTuple):
    """An attempt came to nothing; `view` is what the register says as far as was heard, None: nothing."""

    kind: str
    view: View | None


class Deposed(NamedTuple):
    """The register names another primary or a later term than that of the member which asked."""

    view: View


Outcome = Chosen | Ended | Deposed
Said = tuple[int, View] | None
"""What a proxy has accepted: the ballot and the view."""


def possibly_chosen(said: Iterable[Said], count: int, majority: int) -> View | None:
    """The view of the highest ballot that may have been chosen; None where nobody has accepted anything.

    A proxy that accepted a later ballot may have accepted this one before it, and a silent one may have accepted any.

    Args:
        said: for each proxy that answered what it accepted last.
        count: proxies that are configured.
        majority: of them.
    """
    accepted = sorted((one for one in said if one is not None), key=lambda one: one[0], reverse=True)
    silent = count - len(accepted)
    for ballot, view in accepted:
        backers = sum(other >= ballot for other, _ in accepted)
        if backers + silent >= majority:
            return view
    return accepted[-1][1] if accepted else None


def may_name(member: str, said: Iterable[Said], count: int, majority: int) -> bool:
    """Whether a view that names this member as primary may be in force. Arguments as for `possibly_chosen`."""
    accepted = sorted((one for one in said if one is not None), key=lambda one: one[0], reverse=True)
    silent = count - len(accepted)
    for ballot, view in accepted:
        if sum(other == ballot for other, _ in accepted) >= majority:
            return view.primary == member
        backers = sum(other >= ballot for other, _ in accepted)
        if view.primary == member and backers + silent >= majority:
            return True
    return False


def said_elsewhere(votes: Mapping[str, Vote], proxy: str, vote: Vote) -> bool:
    """Whether another address answered from the same routes file: it is one proxy, and has one vote."""
    return any(other != proxy and one.identity == vote.identity for other, one in votes.items())


@dataclass(slots=True)
class Attempt:
    """One attempt to change the view.

    Attributes:
        token: random; answers to any other do not count.
        until: monotonic seconds; then it has come to nothing.
        wall_ms: the wall clock when it began.
        term: of the primary that asks, 0 for one that is to become it.
        other: whom "add" adds.
        ballot: 0 while it only looks.
        answers: the last one of each proxy, in the phase that is under way.
        view: what is to be accepted; None before that.
        nameless: whether the register was seen not to name this member.
        settles: whether a resume asks for a ballot though it is not named, to see that it cannot be any more.
    """

    kind: str
    token: int
    until: float
    wall_ms: int
    term: int
    other: str
    ballot: int = 0
    answers: dict[str, Vote] = field(default_factory=dict)
    view: View | None = None
    nameless: bool = False
    settles: bool = False

    def said(self) -> list[Said]:
        """What those proxies have accepted that told it, and with a ballot promised it: to tell promises nothing."""
        counts = VoteOutcome.PROMISED if self.ballot else VoteOutcome.TOLD
        votes = [vote for vote in self.answers.values() if vote.outcome is counts]
        return [None if vote.view is None else (vote.ballot, vote.view) for vote in votes]


class Proposer:
    """One member's proposals.

    Args:
        identity: who proposes.
        proxies: those of the configuration, by the addresses under which messages are to be sent to them.
        heartbeat: seconds between a primary's signs of life.
        sticky: seconds for which a proxy that has heard the primary does not help to replace it.
        random: for tokens and waits.
    """

    def __init__(
        self, identity: Identity, proxies: Sequence[str], heartbeat: float, sticky: float, random: Random
    ) -> None:
        self.identity, self.proxies = identity, tuple(proxies)
        self.majority = len(self.proxies) // 2 + 1
        self._heartbeat, self._sticky_ms, self._random = heartbeat, int(sticky * 1000), random
        self.attempt: Attempt | None = None
        self.outgoing: list[tuple[str, Prepare | Accept | Look | Admit | Forget]] = []
        """To whom and what; the shell sends it. A FORGET goes to the other member, whose ID stands there."""
        self.view: View | None = None
        """The view that was chosen last, as far as this member knows by itself."""
        self.unsettled = True
        """Whether the register may say what this member does not know: what it proposed, maybe in an earlier life, may
        have been chosen. A primary proposes once more then, the same or another view; any other member looks whether it
        is named ("resume")."""
        self._proposed: dict[tuple[str, ...], None] = {}
        self._looked = False
        self._highest = 0
        self._quiet_until = self._resume_from = float("-inf")
        self._forgotten: dict[str, None] = {}

    # What others ask -------------------------------------------------------------------------------------------------

    @property
    def required(self) -> tuple[str, ...]:
        """Whoever may be in sync: by the view that was chosen last, and by each that may have been since."""
        chosen = self.view.in_sync if self.view is not None else ()
        return tuple(sorted({*chosen, *(member for in_sync in self._proposed for member in in_sync)}))

    @property
    def highest(self) -> int:
        """The highest ballot that this member has heard of, or asked for."""
        return self._highest

    def may_begin(self, kind: str, now: float) -> bool:
        """Whether no attempt is under way and the wait after the last one is over."""
        waits = now < (self._resume_from if kind == "resume" else self._quiet_until)
        return self.attempt is None and not waits

    def deadline(self) -> float:
        """When `poll` has something to do, in monotonic seconds."""
        return self.attempt.until if self.attempt is not None else float("inf")

    # An attempt ------------------------------------------------------------------------------------------------------

    def begin(self, kind: str, now: float, wall_ms: int, *, term: int = 0, other: str = "") -> None:
        """Begin an attempt; one that is under way comes to nothing.

        Args:
            kind: as above.
            now: the monotonic clock, in seconds.
            wall_ms: the wall clock, in milliseconds since 1970: ballots begin there, and never go back.
            term: for "drop", "add", "remove" and "found": under which this member is primary.
            other: for "add": who.
        """
        until = now + ATTEMPT_BEATS * self._heartbeat
        token = self._random.getrandbits(63)
        self.attempt = Attempt(kind, token, until, wall_ms, term, other, settles=self._looked)
        if kind in _LOOKS_FIRST:
            self._send_all(Look(self.identity.server, self.identity.store, self.attempt.token))
        else:
            self._prepare(self.attempt)

    def look(self, token: int) -> None:
        """Ask all proxies what the register says, outside of an attempt.

        Args:
            token: not that of an attempt.
        """
        self._send_all(Look(self.identity.server, self.identity.store, token))

    def receive(self, proxy: str, vote: Vote, now: float) -> Outcome | None:
        """An answer of a proxy.

        Args:
            proxy: from which, by its address.
            vote: as decoded; one to another attempt does nothing.
            now: the monotonic clock, in seconds.

        Returns:
            What has become of the attempt; None: it goes on.
        """
        attempt = self.attempt
        if proxy not in self.proxies:
            return None
        self._highest = max(self._highest, vote.promised, vote.ballot)
        if attempt is None or vote.token != attempt.token or said_elsewhere(attempt.answers, proxy, vote):
            return None
        if vote.outcome is VoteOutcome.REFUSED and vote.promised > attempt.ballot > 0:
            return self._end(attempt, now)
        if attempt.view is not None:
            return self._accepted(attempt, proxy, vote, now)
        if attempt.ballot:
            return self._promised(attempt, proxy, vote, now)
        return self._told(attempt, proxy, vote, now)

    def poll(self, now: float) -> Outcome | None:
        """End an attempt that took too long."""
        if self.attempt is None or now < self.attempt.until:
            return None
        return self._end(self.attempt, now)

    def is_busy(self, required: Collection[str], now: float) -> bool:
        """Whether an attempt is under way.

        One that is to add a member ends where the primary waits for that member no more: it was given up while the
        ballot was being prepared, and may lack by now what was answered without it.

        Args:
            required: the members that the primary waits for.
            now: the monotonic clock, in seconds.
        """
        attempt = self.attempt
        if attempt is not None and attempt.kind == "add" and attempt.view is None and attempt.other not in required:
            self.cancel(now)
        return attempt is not None

    def cancel(self, now: float) -> None:
        """End the attempt, since what it was for has changed; whether its view was chosen stays open."""
        if self.attempt is not None:
            self._end(self.attempt, now)

    def depose(self, now: float) -> None:
        """This member is primary no more: what it asked for as such ends, and who leads now waits for none of it."""
        self.cancel(now)
        self._quiet_until = float("-inf")

    def resume_at(self, when: float) -> None:
        """Have this member look again whether the register names it, at `when` (monotonic seconds) and not before."""
        self.unsettled, self._resume_from = True, when

    def forget(self, identity: str, now: float) -> None:
        """End what may count on answers of a proxy that has lost its data since.

        Args:
            identity: of its new routes file; a repeat does nothing, since what began later counts on none of them.
            now: the monotonic clock, in seconds.
        """
        if identity in self._forgotten:
            return
        self.cancel(now)
        self._forgotten[identity] = None
        if len(self._forgotten) > _FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    # Its phases ------------------------------------------------------------------------------------------------------

    def _told(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        """The look: whether the register names this member, and enough proxies would promise."""
        if vote.outcome not in {VoteOutcome.TOLD, VoteOutcome.NEW}:
            return None
        attempt.answers[proxy] = vote
        said = attempt.said()
        if len(said) >= self.majority:
            current = possibly_chosen(said, len(self.proxies), self.majority)
            hearing = sum(self._hears(one) for one in attempt.answers.values()) if attempt.kind == "take" else 0
            attempt.nameless = current is None or self._wanted(attempt, current, 1) is None
            settling = attempt.kind == "resume" and attempt.settles
            if (settling or not attempt.nameless) and len(said) - hearing >= self.majority:
                attempt.answers = {}
                self._prepare(attempt)
                return None
        return self._end(attempt, now) if len(attempt.answers) == len(self.proxies) else None

    def _hears(self, vote: Vote) -> bool:
        return 0 <= vote.silence_ms < self._sticky_ms

    def _prepare(self, attempt: Attempt) -> None:
        self._highest = attempt.ballot = max(attempt.wall_ms, self._highest + 1)
        me, kind = self.identity, attempt.kind
        sticky_ms = self._sticky_ms if kind == "take" else 0
        self._send_all(Prepare(me.server, me.store, me.member, attempt.ballot, attempt.token, kind, sticky_ms))

    def _promised(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        if vote.outcome is VoteOutcome.TOLD or (vote.outcome is not VoteOutcome.PROMISED and proxy in attempt.answers):
            return None  # A late answer to the look; or one to a repeat, to which the ballot itself is refused.
        attempt.answers[proxy] = vote
        said, me = attempt.said(), self.identity.member
        if len(said) >= self.majority:
            current = possibly_chosen(said, len(self.proxies), self.majority)
            view = None if current is None else self._wanted(attempt, current, attempt.ballot)
            if view is not None:
                self._accept(attempt, view)
                return None
            if current is not None and attempt.kind in {"drop", "add", "remove"} and self._deposes(attempt, current):
                self._end(attempt, now)
                return Deposed(current)
            if attempt.kind == "resume" and not may_name(me, said, len(self.proxies), self.majority):
                self.unsettled = False  # And what is still under way comes too late: it is of a lower ballot.
            # The others may answer by and by: a view of a few that hides the chosen one is told apart then.
            attempt.nameless = True
        return self._end(attempt, now) if len(attempt.answers) == len(self.proxies) else None

    def _deposes(self, attempt: Attempt, current: View) -> bool:
        return current.primary != self.identity.member or current.term != attempt.term

    def _wanted(self, attempt: Attempt, current: View, ballot: int) -> View | None:
        """The view that the attempt is for, given the one that may be in force; None: that one does not allow it."""
        me = self.identity
        new_term = current._replace(term=ballot, primary=me.member, address=me.address)
        mine = not self._deposes(attempt, current)
        match attempt.kind:
            case "take" if me.member in current.in_sync:
                return new_term._replace(in_sync=(me.member,))
            case "hand" if me.member in current.in_sync:
                return new_term
            case "resume" if current.primary == me.member:
                return new_term
            case "found" if current.members == (me.member,):
                return new_term._replace(term=attempt.term)
            case "drop" if mine:
                return current._replace(in_sync=(me.member,))
            case "remove" if mine:
                return current._replace(members=(me.member,), in_sync=(me.member,))
            case "add" if mine:
                both = tuple(sorted((me.member, attempt.other)))
                return current._replace(members=both, in_sync=both) if set(current.members) <= set(both) else None
        return None

    def _accept(self, attempt: Attempt, view: View) -> None:
        attempt.view, attempt.answers, self.unsettled = view, {}, True
        self._proposed[view.in_sync] = None
        me = self.identity
        self._send_all(Accept(me.server, me.store, me.member, attempt.ballot, attempt.token, view))

    def _accepted(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        assert attempt.view is not None
        if vote.outcome is not VoteOutcome.ACCEPTED:
            return None
        attempt.answers[proxy] = vote
        if len(attempt.answers) < self.majority:
            return None
        self.attempt, self.view, self.unsettled, self._proposed = None, attempt.view, False, {}
        return Chosen(attempt.kind, attempt.view)

    def _end(self, attempt: Attempt, now: float) -> Ended:
        self.attempt = None
        takes, resumes = attempt.kind == "take", attempt.kind == "resume"
        beats = NAMELESS_WAIT_BEATS if attempt.nameless and not takes else WAIT_BEATS
        spread = self._random.random() * SPREAD_BEATS
        until = now + (beats + (spread if attempt.ballot or not takes else 0)) * self._heartbeat
        self._resume_from = max(self._resume_from, until)
        self._looked = self._looked or (resumes and attempt.nameless)
        if not resumes or (attempt.ballot and not attempt.nameless):
            self._quiet_until = until  # Who learned only that it is not named may take over as soon as it is.
        return Ended(attempt.kind, possibly_chosen(attempt.said(), len(self.proxies), self.majority))

    def _send_all(self, message: Prepare | Accept | Look) -> None:
        self.outgoing.extend((proxy, message) for proxy in self.proxies)
