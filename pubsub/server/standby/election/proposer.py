"""The proposals of one member to the register of its store (docs/explanation/register.md).

The proxies keep the register; a majority of them decides. This module is one member's side of a ballot (CASPaxos). An
*attempt* changes the view:

    takeover            a member in sync replaces a silent primary under a new term, and is then alone in sync
    resume              a primary that has started again serves under a new term; the in-sync set stays the same
    handover            planned switch: the other member has everything, and becomes primary under a new term; both
                        are in sync
    remove_from_sync    the primary goes on without the other member
    add_to_sync         the other member has all answered data, and the primary waits for it again
    remove              the other member is gone permanently
    bootstrap           the first view of a register whose rows were just made (see
                        `standby.election.acceptor_recovery`)

A takeover or a resume begins with a look, which binds no proxy. A member asks for no ballot, and so hinders nobody, if
the register does not name it or if a proxy hears its primary. After the look the member prepares a ballot, computes the
view from the views that the proxies accepted, and asks them to accept it. A view that a majority has accepted is
chosen.

After a failed ballot the member waits for a random time, because two members that retry at once would block each other
permanently. The wait is long for a member that the register does not name. A takeover does not wait for the result of
a resume: the register may name the member by then, and a look comes first in any case.

A view that was sent to be accepted may be chosen, even if the attempt fails. `required` names all members that may be
in sync, and the primary waits for all of them until one of its proposals is known to be chosen. Any other member must
make sure that the register does not name it as primary. It looks first. Later it asks for one ballot even if it is not
named: an earlier view may still be under way to the proxies, and after that ballot it comes too late.

The rules are those of docs/explanation/register.md, R1, R4, R5 and R7.
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
"""Heartbeats after which an attempt has failed."""

WAIT_BEATS: Final = 0.5
"""Minimum wait before the next attempt, in heartbeats."""

NAMELESS_WAIT_BEATS: Final = 6.0
"""Minimum wait of a member that the register does not name, in heartbeats. A takeover keeps the short wait: it asks for
no ballot if the member is not named."""

SPREAD_BEATS: Final = 4.0
"""Maximum of the random part of either wait, in heartbeats. A takeover that only looked has no random part."""

_LOOKS_FIRST: Final = frozenset({"takeover", "resume"})
_OF_A_PRIMARY: Final = frozenset({"remove_from_sync", "add_to_sync", "remove"})
_FORGOTTEN_MAX: Final = PROXIES_MAX


@dataclass(frozen=True, slots=True)
class Identity:
    """IDs and address of the member that proposes.

    Attributes:
        server, store: IDs that both members share.
        member: the ID of this member alone.
        address: the address at which the other member reaches this one.
    """

    server: str
    store: str
    member: str
    address: str


class Chosen(NamedTuple):
    kind: str
    view: View


class Ended(NamedTuple):
    """The attempt failed. `view` is the register's view as far as proxies answered, None if no answer had one."""

    kind: str
    view: View | None


class Deposed(NamedTuple):
    """The register names another primary, or a later term than the one under which this member asked."""

    view: View


Outcome = Chosen | Ended | Deposed
AcceptedView = tuple[int, View] | None
"""The ballot and the view that a proxy accepted last; None if it has accepted nothing."""


def possibly_chosen(said: Iterable[AcceptedView], count: int, majority: int) -> View | None:
    """Return the view of the highest ballot that may have been chosen, or None if no proxy has accepted a view.

    A proxy that accepted a later ballot may have accepted this one before. A silent proxy may have accepted any ballot.

    Args:
        said: for each proxy that answered, its last accepted ballot and view.
        count: number of configured proxies.
        majority: number of proxies that are a majority of `count`.
    """
    accepted = sorted((one for one in said if one is not None), key=lambda one: one[0], reverse=True)
    silent = count - len(accepted)
    for ballot, view in accepted:
        backers = sum(other >= ballot for other, _ in accepted)
        if backers + silent >= majority:
            return view
    return accepted[-1][1] if accepted else None


def may_name(member: str, said: Iterable[AcceptedView], count: int, majority: int) -> bool:
    """Return True if a view that names this member as primary may be in force. Arguments as for `possibly_chosen`."""
    accepted = sorted((one for one in said if one is not None), key=lambda one: one[0], reverse=True)
    silent = count - len(accepted)
    for ballot, view in accepted:
        if sum(other == ballot for other, _ in accepted) >= majority:
            return view.primary == member
        backers = sum(other >= ballot for other, _ in accepted)
        if view.primary == member and backers + silent >= majority:
            return True
    return False


def accepted_elsewhere(votes: Mapping[str, Vote], proxy: str, vote: Vote) -> bool:
    """Return True if another address gave the same routes file: both addresses are one proxy, which has one vote."""
    return any(other != proxy and one.identity == vote.identity for other, one in votes.items())


@dataclass(slots=True)
class Attempt:
    """One attempt to change the view.

    Attributes:
        token: random; the attempt ignores answers with another token.
        until: monotonic seconds at which the attempt fails.
        wall_ms: the wall clock when the attempt began, in milliseconds since 1970.
        term: term of the primary that asks; 0 for a member that is to become primary.
        other: the member that "add_to_sync" adds.
        ballot: 0 while the attempt only looks.
        answers: the last answer of each proxy in the current phase.
        view: the proposed view; None before the accept phase.
        nameless: True if the register was seen not to name this member.
        settles: True if a resume asks for a ballot even if this member is not named, so that no earlier proposal can
            still be chosen.
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

    def said(self) -> list[AcceptedView]:
        """Return the accepted views that count: those of promises, or before the ballot those of answers to the look.

        A proxy that answers a look promises nothing, so its answer does not count once there is a ballot.
        """
        counts = VoteOutcome.PROMISED if self.ballot else VoteOutcome.REPORTED
        votes = [vote for vote in self.answers.values() if vote.outcome is counts]
        return [None if vote.view is None else (vote.ballot, vote.view) for vote in votes]


class Proposer:
    """One member's proposals.

    Args:
        identity: of the member that proposes.
        proxies: the configured proxies, by the addresses to which messages are sent.
        heartbeat: seconds between two heartbeats of a primary.
        sticky: seconds for which a proxy that has heard the primary refuses to replace it.
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
        """Pairs of recipient and message, for the shell to send. The recipient of a FORGET is the other member, by its
        ID."""
        self.view: View | None = None
        """The last view known to be chosen, from this member's own attempts."""
        self.unsettled = True
        """True if the register may hold a view that this member does not know. One of its own proposals, perhaps
        from an earlier life, may have been chosen. A primary then proposes once more, the same view or another. Any
        other member looks whether the register names it ("resume")."""
        self._proposed: dict[tuple[str, ...], None] = {}
        self._looked = False
        self._highest = 0
        self._quiet_until = self._resume_from = float("-inf")
        self._forgotten: dict[str, None] = {}

    # Queries ---------------------------------------------------------------------------------------------------------

    @property
    def required(self) -> tuple[str, ...]:
        """All members that may be in sync: those of the last chosen view and of each view proposed since."""
        chosen = self.view.in_sync if self.view is not None else ()
        return tuple(sorted({*chosen, *(member for in_sync in self._proposed for member in in_sync)}))

    @property
    def highest(self) -> int:
        """The highest ballot that this member has received or used."""
        return self._highest

    def may_begin(self, kind: str, now: float) -> bool:
        """Return True if no attempt is under way and the wait after the last one is over."""
        waits = now < (self._resume_from if kind == "resume" else self._quiet_until)
        return self.attempt is None and not waits

    def deadline(self) -> float:
        """Return the time at which `poll` has work, in monotonic seconds."""
        return self.attempt.until if self.attempt is not None else float("inf")

    # Attempts --------------------------------------------------------------------------------------------------------

    def begin(self, kind: str, now: float, wall_ms: int, *, term: int = 0, other: str = "") -> None:
        """Begin an attempt. An attempt that is under way is abandoned.

        Args:
            kind: one of the kinds in the module's table.
            now: the monotonic clock, in seconds.
            wall_ms: the wall clock, in milliseconds since 1970. Ballots begin there and never go back.
            term: for "remove_from_sync", "add_to_sync", "remove" and "bootstrap": the term under which this member is
                primary.
            other: for "add_to_sync": the member to add.
        """
        until = now + ATTEMPT_BEATS * self._heartbeat
        token = self._random.getrandbits(63)
        self.attempt = Attempt(kind, token, until, wall_ms, term, other, settles=self._looked)
        if kind in _LOOKS_FIRST:
            self._send_all(Look(self.identity.server, self.identity.store, self.attempt.token))
        else:
            self._prepare(self.attempt)

    def look(self, token: int) -> None:
        """Ask all proxies for their view of the register, outside of an attempt.

        Args:
            token: any token but the current attempt's.
        """
        self._send_all(Look(self.identity.server, self.identity.store, token))

    def receive(self, proxy: str, vote: Vote, now: float) -> Outcome | None:
        """Process an answer of a proxy.

        Args:
            proxy: address of the proxy.
            vote: decoded answer; an answer to another attempt has no effect on this one.
            now: the monotonic clock, in seconds.

        Returns:
            The result of the attempt, or None while the attempt goes on.
        """
        attempt = self.attempt
        if proxy not in self.proxies:
            return None
        self._highest = max(self._highest, vote.promised, vote.ballot)
        if attempt is None or vote.token != attempt.token or accepted_elsewhere(attempt.answers, proxy, vote):
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
        """Return True if an attempt is under way.

        An "add_to_sync" ends here if the primary no longer waits for its member. The primary gave that member up while
        the ballot was prepared, and may have answered without it since. The member may therefore lack answered data.

        Args:
            required: the members for which the primary waits.
            now: the monotonic clock, in seconds.
        """
        attempt = self.attempt
        if (
            attempt is not None
            and attempt.kind == "add_to_sync"
            and attempt.view is None
            and attempt.other not in required
        ):
            self.cancel(now)
        return attempt is not None

    def cancel(self, now: float) -> None:
        """End the attempt because its purpose has changed. Its view may still be chosen."""
        if self.attempt is not None:
            self._end(self.attempt, now)

    def depose(self, now: float) -> None:
        """End the attempt of a primary that was replaced. As a standby the member may start the next attempt without a
        wait."""
        self.cancel(now)
        self._quiet_until = float("-inf")

    def resume_at(self, when: float) -> None:
        """Have this member look again whether the register names it, at `when` (monotonic seconds) and not before."""
        self.unsettled, self._resume_from = True, when

    def forget(self, identity: str, now: float) -> None:
        """End the attempt, because it may count answers of a proxy that has since lost its data.

        Args:
            identity: of the proxy's new routes file. A repeat does nothing: later attempts count none of the old
                answers.
            now: the monotonic clock, in seconds.
        """
        if identity in self._forgotten:
            return
        self.cancel(now)
        self._forgotten[identity] = None
        if len(self._forgotten) > _FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    # Phases of an attempt --------------------------------------------------------------------------------------------

    def _told(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        """Go on to the ballot if the register names this member and enough proxies would promise."""
        if vote.outcome not in {VoteOutcome.REPORTED, VoteOutcome.NEW}:
            return None
        attempt.answers[proxy] = vote
        said = attempt.said()
        if len(said) >= self.majority:
            current = possibly_chosen(said, len(self.proxies), self.majority)
            alive = sum(self._receives(one) for one in attempt.answers.values()) if attempt.kind == "takeover" else 0
            attempt.nameless = current is None or self._wanted(attempt, current, 1) is None
            settling = attempt.kind == "resume" and attempt.settles
            if (settling or not attempt.nameless) and len(said) - alive >= self.majority:
                attempt.answers = {}
                self._prepare(attempt)
                return None
        return self._end(attempt, now) if len(attempt.answers) == len(self.proxies) else None

    def _receives(self, vote: Vote) -> bool:
        return 0 <= vote.silence_ms < self._sticky_ms

    def _prepare(self, attempt: Attempt) -> None:
        self._highest = attempt.ballot = max(attempt.wall_ms, self._highest + 1)
        me, kind = self.identity, attempt.kind
        sticky_ms = self._sticky_ms if kind == "takeover" else 0
        self._send_all(Prepare(me.server, me.store, me.member, attempt.ballot, attempt.token, kind, sticky_ms))

    def _promised(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        if vote.outcome is VoteOutcome.REPORTED or (
            vote.outcome is not VoteOutcome.PROMISED and proxy in attempt.answers
        ):
            return None  # A late answer to the look, or the refusal of a repeated PREPARE that was promised before.
        attempt.answers[proxy] = vote
        said, me = attempt.said(), self.identity.member
        if len(said) >= self.majority:
            current = possibly_chosen(said, len(self.proxies), self.majority)
            view = None if current is None else self._wanted(attempt, current, attempt.ballot)
            if view is not None:
                self._accept(attempt, view)
                return None
            if current is not None and attempt.kind in _OF_A_PRIMARY and self._deposes(attempt, current):
                self._end(attempt, now)
                return Deposed(current)
            if attempt.kind == "resume" and not may_name(me, said, len(self.proxies), self.majority):
                self.unsettled = False  # Proposals still under way have a lower ballot and come too late.
            # Wait for the other proxies: a view that only a few accepted may hide the chosen one until they answer.
            attempt.nameless = True
        return self._end(attempt, now) if len(attempt.answers) == len(self.proxies) else None

    def _deposes(self, attempt: Attempt, current: View) -> bool:
        return current.primary != self.identity.member or current.term != attempt.term

    def _wanted(self, attempt: Attempt, current: View, ballot: int) -> View | None:
        """Return the view to propose, given the view that may be in force; None if that view does not allow the
        attempt."""
        me = self.identity
        new_term = current._replace(term=ballot, primary=me.member, address=me.address)
        mine = not self._deposes(attempt, current)
        match attempt.kind:
            case "takeover" if me.member in current.in_sync:
                return new_term._replace(in_sync=(me.member,))
            case "handover" if me.member in current.in_sync:
                return new_term
            case "resume" if current.primary == me.member:
                return new_term
            case "bootstrap" if current.members == (me.member,):
                return new_term._replace(term=attempt.term)
            case "remove_from_sync" if mine:
                return current._replace(in_sync=(me.member,))
            case "remove" if mine:
                return current._replace(members=(me.member,), in_sync=(me.member,))
            case "add_to_sync" if mine:
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
        takes, resumes = attempt.kind == "takeover", attempt.kind == "resume"
        beats = NAMELESS_WAIT_BEATS if attempt.nameless and not takes else WAIT_BEATS
        spread = self._random.random() * SPREAD_BEATS
        until = now + (beats + (spread if attempt.ballot or not takes else 0)) * self._heartbeat
        self._resume_from = max(self._resume_from, until)
        self._looked = self._looked or (resumes and attempt.nameless)
        if not resumes or (attempt.ballot and not attempt.nameless):
            self._quiet_until = until  # A resume that only found no name delays no takeover: the name may come soon.
        return Ended(attempt.kind, possibly_chosen(attempt.said(), len(self.proxies), self.majority))

    def _send_all(self, message: Prepare | Accept | Look) -> None:
        self.outgoing.extend((proxy, message) for proxy in self.proxies)
