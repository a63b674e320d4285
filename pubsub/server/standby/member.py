"""One of the two members of a server: its role, and the part to which each message goes. The parts make the decisions.

    standby   follows the primary and looks at the register; takes over if the primary is silent or hands over; resumes
              if the register names it
    taking    a view that names this member was chosen: it applies all its entries before it serves
    primary   leads; proposes the in-sync set to the register, and sees to it that all proxies have a vote

    the other member ── ENTRY, FOLLOW, ACK, FORGET ──> receive ──┐                    ┌──> to_proxies
    proxies ─────────── VOTE ───────────────────────> vote ───┼─> Following, Leading ─┤
    time ───────────────────────────────────────────> tick ───┘   Proposer, …         └──> to_other

The shell does the work on disks, and calls `following` and `leading` about it directly. After each step that may have
changed the role, the shell checks `role` and `over`: `lead` makes a taking member the primary, and `follow` makes a
deposed primary a standby. A member that lost confirmed data is not eligible. It has no part in ballots until it has
confirmed to a primary that all data is here again.

The rule is docs/explanation/failover.md, F7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_hex
from pubsub.protocol.register import MEMBERS_MAX, Accept, Admit, Forget, Look, Prepare, View, Vote
from pubsub.protocol.standby import Ack, Entries, EntryId, Follow, split_entries
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery, Founding
from pubsub.server.standby.election.failure_detector import Accepted, FailureDetector, Times
from pubsub.server.standby.election.proposer import Chosen, Deposed, Identity, Outcome, Proposer
from pubsub.server.standby.replication.entries import Entry, received
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import History, Leading

if TYPE_CHECKING:
    from random import Random

NO_STORE: Final = "0" * 16
"""Store ID of a member that has no store yet: it follows, and has no part in ballots."""

_NEW_TERM: Final = frozenset({"takeover", "resume", "handover"})

ToProxy = Prepare | Accept | Look | Admit
ToMember = Entries | Follow | Ack | Forget


class Role(StrEnum):
    STANDBY = "standby"
    TAKING = "taking"
    PRIMARY = "primary"


class Member:
    """A member, without its sockets and disks.

    Args:
        identity: of this member, for its messages.
        proxies: addresses of the configured proxies.
        times: of this member.
        random: for tokens and waits.
        registered: True if the disk records that the store has a register.
        eligible: False if the disk lost confirmed data.
        now: monotonic seconds.

    Attributes:
        following, leading: the one for the current role is set after `follow` or `lead`.
        term: the term that `lead` begins, or under which this member is primary.
        view: the view that may be in force, from the answers of the proxies; it may be out of date.
        kept: True if the disk has the values of `registered` and `eligible`. Until then no member is added: after a
            restart that knows of no register this member would serve alone.
    """

    def __init__(
        self,
        identity: Identity,
        proxies: Sequence[str],
        times: Times,
        random: Random,
        now: float,
        *,
        registered: bool = False,
        eligible: bool = True,
    ) -> None:
        self.identity, self._times, self._random = identity, times, random
        self._places = {proxy: place for place, proxy in enumerate(proxies)}
        self.proposer = Proposer(identity, proxies, times.heartbeat, times.sticky, random)
        self._failure_detector = FailureDetector(self.proposer.majority, times, random, now)
        self.acceptor_recovery = AcceptorRecovery(self.proposer, random)
        self.founding: Founding | None = None
        self.role = Role.STANDBY
        self.following: Following | None = None
        self.leading: Leading | None = None
        self.registered, self.eligible, self.kept = registered, eligible, True
        self.term = 0
        self.view: View | None = None
        self._accepted = Accepted(len(self._places), self.proposer.majority)
        self._removing, self._removing_since = "", now
        self._in_sync: tuple[str, ...] = ()
        self._look_at = self._beat_at = now
        self._said: list[Forget | Follow] = []

    # Roles

    def follow(
        self, applied: EntryId, staged: Iterable[Entry], now: float, wall_ms: int, resume_after: float = 0.0
    ) -> None:
        """Become a standby: at the start, after the end of a term as primary, or if a term could not begin.

        Args:
            applied: the last entry of the store.
            staged: the entries of the stream file behind `applied`, all synced.
            now: monotonic seconds.
            wall_ms: the wall clock, in milliseconds since 1970.
            resume_after: seconds until this member looks whether the register names it.
        """
        me, was_primary = self.identity, self.leading is not None
        if was_primary:
            self.proposer.depose(now)
        else:
            self.proposer.cancel(now)
        self.acceptor_recovery.end()
        self.leading = self.founding = None
        self.role, self._removing = Role.STANDBY, ""
        self.following = Following(me.server, me.store, me.member, applied, staged, self._random, now, self._times.beat)
        self.following.address = me.address
        self.following.known = self.term
        self._failure_detector = FailureDetector(self.proposer.majority, self._times, self._random, now)
        if resume_after:
            self.proposer.resume_at(now + resume_after)
        elif not was_primary and self._votes:
            self.proposer.begin("resume", now, wall_ms)

    def lead(self, end: EntryId, history: History, now: float) -> Leading:
        """Become the primary of the chosen term. All entries of this member must be applied.

        Args:
            end: the last entry of the store.
            history: the stream file.
            now: monotonic seconds.
        """
        assert self.role is Role.TAKING
        return self._lead(self.term, self._in_sync, end, history, now)

    def found(self, term: int, end: EntryId, history: History, now: float) -> Leading:
        """Become the primary of a store without a register: this member serves alone, and founds the register.

        Args:
            term: under which it serves.
            end, history, now: as for `lead`.
        """
        self.term = term
        self.founding = Founding(self.proposer, term, self._random)
        return self._lead(term, (self.identity.member,), end, history, now)

    def _lead(self, term: int, in_sync: tuple[str, ...], end: EntryId, history: History, now: float) -> Leading:
        me, times = self.identity, self._times
        self.role, self.following = Role.PRIMARY, None
        self.leading = Leading(
            me.server, me.store, me.member, term, in_sync, end, history, now, times.silence, times.switch
        )
        self._look_at = self._beat_at = now
        return self.leading

    @property
    def over(self) -> bool:
        """True if this member is still primary although a later term is known. The caller must then call `follow`."""
        return self.leading is not None and self.leading.deposed

    @property
    def _votes(self) -> bool:
        """True if this member may have a part in ballots."""
        return self.eligible and self.identity.store != NO_STORE

    @property
    def primary(self) -> tuple[str, str]:
        """ID and address of the other member as the primary; empty if this member is primary or knows none."""
        view = self.view
        if view is None or view.primary == self.identity.member:
            return "", ""
        return view.primary, view.address

    # Input

    def link_ended(self, now: float) -> None:
        """Record that the link to the other member ended, as seen from this end."""
        self._failure_detector.ended(now)
        if self.leading is not None:
            self.leading.unreachable()

    def receive(self, message: ToMember, frames: Sequence[Buffer], now: float) -> bool:
        """Process a message of the other member.

        Args:
            message: as decoded.
            frames: the frames after the body of an ENTRY.
            now: monotonic seconds.

        Returns:
            True if the message is for this member: same server, same store, other member.

        Raises:
            DecodeError: the body or the frames are malformed.
        """
        if not _is_for(self.identity, message):
            return False
        match message:
            case Entries() if self.leading is not None:
                self.leading.learn_term(message.term)
            case Entries() if self.following is not None and self.role is Role.STANDBY:
                self._entries(self.following, message, frames, now)
            case Follow() if self.leading is not None:
                self._followed(self.leading, message, now)
            case Ack() if self.leading is not None:
                self.leading.acknowledged(message, now)
            case Forget():
                self._forget(message, now)
        return True

    def _entries(self, following: Following, message: Entries, frames: Sequence[Buffer], now: float) -> None:
        entries = received(split_entries(message.body), frames)
        if message.term > following.floor:
            self.proposer.cancel(now)  # A primary with a later term serves. This attempt would replace an earlier one.
        following.entries(message, entries, now)
        attempt = self.proposer.attempt
        if attempt is not None and attempt.kind == "handover" and attempt.view is None and not following.handed:
            self.proposer.cancel(now)

    def _followed(self, leading: Leading, message: Follow, now: float) -> None:
        view = self.proposer.view
        members = {self.identity.member} if view is None else set(view.members)
        if len(members | {message.member}) > MEMBERS_MAX:
            leading.learn_term(message.known)
            return
        leading.followed(message, now)

    def _forget(self, message: Forget, now: float) -> None:
        if message.done:
            self.acceptor_recovery.forgotten(message)
            return
        if self.role is not Role.STANDBY:
            return  # Two members may believe that they are primary. Neither may help the other to its view.
        self.proposer.forget(message.identity, now)
        me = self.identity
        self._said.append(Forget(me.server, me.store, me.member, message.identity, done=1))

    def vote(self, place: int, vote: Vote, now: float) -> None:
        """Process an answer of a proxy.

        Args:
            place: index of the proxy in the configuration.
            vote: as decoded.
            now: monotonic seconds.
        """
        if vote.store != self.identity.store:
            return
        proxy = self.proposer.proxies[place]
        self.view = self._accepted.receive(place, vote) or self.view
        self._failure_detector.vote(place, vote, now)
        outcome = self.proposer.receive(proxy, vote, now)
        attempt = self.proposer.attempt
        if self.leading is not None:
            if attempt is not None and attempt.view is not None:
                self.leading.proposed(attempt.view.in_sync)
            if self.founding is not None:
                self.founding.receive(proxy, vote)
            else:
                self.acceptor_recovery.receive(proxy, vote, now)
        self._become(outcome)

    def deposed_by(self, term: int) -> None:
        """Record that a proxy knows a primary of this term."""
        if self.leading is not None:
            self.leading.learn_term(term)

    def _become(self, outcome: Outcome | None) -> None:
        match outcome:
            case Chosen(kind, view) if kind in _NEW_TERM:
                if self.following is not None:  # False only if a later term ended the attempt.
                    self.view, self.term, self._in_sync = view, view.term, view.in_sync
                    self.role, self.registered = Role.TAKING, True
                    self.following.known = view.term
                    self._said.append(self.following.follow())  # Names the new term: the old primary stops at once.
            case Chosen(kind, view):
                self.view = view
                if self.leading is not None and view.term == self.leading.term:
                    self.registered, self.founding = True, None
                    self.leading.chosen(view.in_sync)
            case Deposed(view):
                self.view = view
                if self.leading is not None:
                    self.leading.deposed = True

    # Time

    def tick(self, now: float, wall_ms: int) -> None:
        """Do the work due at `now` (monotonic seconds). Ballots begin at `wall_ms` (milliseconds since 1970)."""
        self._become(self.proposer.poll(now))
        if self.following is not None and self.role is Role.STANDBY:
            self._take_part(self.following, now, wall_ms)
        elif self.leading is not None and not self.leading.deposed:
            self._beat(self.leading, now)
            self._lead_on(self.leading, now, wall_ms)

    def _take_part(self, following: Following, now: float, wall_ms: int) -> None:
        if self.identity.store == NO_STORE:
            return
        token = self._failure_detector.look(following.received_at, now, known=bool(self.primary[0]))
        if token:
            self.proposer.look(token)
        if not self._votes:
            return
        silent = now - following.received_at > self._times.patience + self._times.heartbeat / 2
        silent = silent or self._failure_detector.lost(following.received_at, now)
        kind = "handover" if following.handed else "takeover" if silent else "resume" if self.proposer.unsettled else ""
        if kind and self.proposer.may_begin(kind, now):
            self.proposer.begin(kind, now, wall_ms)

    def _beat(self, leading: Leading, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + self._times.beat
            leading.beat()
        if now >= self._look_at:
            self._look_at = now + self._times.heartbeat
            if self.founding is None:
                self.acceptor_recovery.look()
            else:
                self.founding.look()
        leading.tick(now)

    def _lead_on(self, leading: Leading, now: float, wall_ms: int) -> None:
        founding, view = self.founding, self.proposer.view
        if self.proposer.is_busy(leading.required, now):
            return
        if founding is not None:
            existing = founding.existing
            if existing is not None:
                self.view, leading.deposed = existing, True
            elif founding.done:
                self._propose("bootstrap", now, wall_ms)
            return
        wanted = leading.proposal(now)
        gone = view is not None and self._removing not in view.members
        # A member that confirms new entries is alive. A request that stayed would remove it at its next absence.
        lives = now - self._removing_since > 2 * self._times.silence and leading.lag(now)[0]
        if gone or (lives and self._removing in leading.in_sync):
            self._removing = ""
        if self._removing and view is not None and view.in_sync == (self.identity.member,):
            self._propose("remove", now, wall_ms)
        elif wanted is not None:
            other = next((member for member in sorted(wanted) if member != self.identity.member), "")
            if self.kept or not other:
                self._propose("add_to_sync" if other else "remove_from_sync", now, wall_ms, other)

    def _propose(self, kind: str, now: float, wall_ms: int, other: str = "") -> None:
        if self.proposer.may_begin(kind, now):
            self.proposer.begin(kind, now, wall_ms, term=self.term, other=other)

    def deadline(self) -> float:
        """Return the time at which `tick` or `outgoing` has work, in monotonic seconds."""
        due, following = self.proposer.deadline(), self.following
        if self.leading is not None:
            return min(due, self._beat_at, self._look_at)
        if following is not None and self.identity.store != NO_STORE:
            due = min(due, self._failure_detector.deadline(following.received_at, known=bool(self.primary[0])))
        return due if following is None else min(due, following.deadline())

    # Operator requests

    def remove(self, member: str, now: float) -> bool:
        """Remove a member that is gone permanently, as soon as it is not in sync. Return False if there is no such
        member."""
        view = self.proposer.view
        known = is_hex(member) and view is not None and member in view.members and member != self.identity.member
        if not known or self.leading is None:
            return False
        self._removing, self._removing_since = member, now
        return True

    # Output

    def to_proxies(self) -> list[tuple[int, ToProxy]]:
        """Return and clear the messages to the proxies, each with the proxy's index in the configuration."""
        said = self.proposer.outgoing
        out = [(self._places[whom], message) for whom, message in said if not isinstance(message, Forget)]
        said[:] = [one for one in said if isinstance(one[1], Forget)]
        return out

    def to_other(self, now: float) -> list[tuple[ToMember, list[Entry]]]:
        """Return and clear the messages to the other member, each with its entries. None of these messages is held."""
        out: list[tuple[ToMember, list[Entry]]] = [(message, []) for message in self._said]
        self._said.clear()
        asked = self.proposer.outgoing
        out += [(message, []) for _, message in asked if isinstance(message, Forget)]
        asked[:] = [one for one in asked if not isinstance(one[1], Forget)]
        if self.leading is not None:
            out += self.leading.outgoing()
        elif self.following is not None and self.role is Role.STANDBY:
            for said in self.following.outgoing(now):
                # A member that confirms a loop has all data that it ever confirmed, so all answered data.
                self.eligible = self.eligible or (isinstance(said, Ack) and said.loop > 0)
                out.append((said, []))
        return out


def _is_for(me: Identity, message: ToMember) -> bool:
    """Return True if the message is from the other member of the same server and store, as far as that is known."""
    ours = message.store == me.store or (isinstance(message, Follow) and message.store == NO_STORE)
    new = me.store == NO_STORE and isinstance(message, Entries)
    return message.sender == me.server and message.member != me.member and (ours or new)
