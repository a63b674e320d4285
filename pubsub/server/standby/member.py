"""One member of a pair: which role it has, and what goes to which part of it. It decides nothing that a part decides.

    standby   follows; looks at the register, and takes over where the primary is silent, hands over, or is itself
    taking    a view that names it was chosen: all that it has is to be applied before it serves
    primary   leads; asks the register for who is in sync, and sees to it that all proxies have a vote

    the other member ── ENTRY, FOLLOW, ACK, FORGET ──> hear ──┐                       ┌──> to_proxies
    proxies ─────────── VOTE ───────────────────────> vote ───┼─> Following, Leading ─┤
    time ───────────────────────────────────────────> tick ───┘   Proposer, …         └──> to_other

The shell does what is to be done on disks, and calls `following` and `leading` about it directly. After anything that
may have changed the role it looks at `role` and `over`: `lead` makes a taking member the primary, `follow` a primary
that is deposed a standby. A member that lost what it had confirmed is not eligible: it has no part in ballots until it
has confirmed to a primary that all is here again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_hex
from pubsub.protocol.register import MEMBERS_MAX, Accept, Admit, Forget, Look, Prepare, View, Vote
from pubsub.protocol.standby import Ack, Entries, EntryId, Follow, split_entries
from pubsub.server.standby.election.acceptor_recovery import Founding, Readmission
from pubsub.server.standby.election.failure_detector import Accepted, Times, Watch
from pubsub.server.standby.election.proposer import Chosen, Deposed, Identity, Outcome, Proposer
from pubsub.server.standby.replication.entries import Entry, received
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import History, Leading

if TYPE_CHECKING:
    from random import Random

NO_STORE: Final = "0" * 16
"""Stands for the ID of the store of a member that has none yet: it follows, and has no part in ballots."""

_NEW_TERM: Final = frozenset({"take", "resume", "hand"})

ToProxy = Prepare | Accept | Look | Admit
ToMember = Entries | Follow | Ack | Forget


class Role(StrEnum):
    """What a member is."""

    STANDBY = "standby"
    TAKING = "taking"
    PRIMARY = "primary"


class Member:
    """A member, without its sockets and disks.

    Args:
        identity: whose messages these are.
        proxies: those of the configuration, by address.
        times: its own.
        random: for tokens and waits.
        registered: whether this member knows durably that its store has a register.
        eligible: False where its disk lost what it had confirmed.
        now: monotonic seconds.

    Attributes:
        following, leading: one of them is there, by role, once `follow` or `lead` was called.
        term: which `lead` begins, or under which this member is primary.
        view: the one that may be in force, as far as proxies have told this member; it may be out of date.
        kept: whether the disk has what `registered` and `eligible` say. Until it does no member is added: a start that
            knows of no register would serve alone.
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
        self._watch = Watch(self.proposer.majority, times, random, now)
        self.readmission = Readmission(self.proposer, random)
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
        """Be a standby: at the start, or as a primary whose term is over, or who could not begin its term.

        Args:
            applied: the entry that the store ends with.
            staged: the entries of the stream file behind it, all synced.
            now: monotonic seconds.
            wall_ms: the wall clock, in milliseconds since 1970.
            resume_after: seconds until it asks the register whether it is named.
        """
        me, was_primary = self.identity, self.leading is not None
        if was_primary:
            self.proposer.depose(now)
        else:
            self.proposer.cancel(now)
        self.readmission.end()
        self.leading = self.founding = None
        self.role, self._removing = Role.STANDBY, ""
        self.following = Following(me.server, me.store, me.member, applied, staged, self._random, now, self._times.beat)
        self.following.address = me.address
        self.following.known = self.term
        self._watch = Watch(self.proposer.majority, self._times, self._random, now)
        if resume_after:
            self.proposer.resume_at(now + resume_after)
        elif not was_primary and self._votes:
            self.proposer.begin("resume", now, wall_ms)

    def lead(self, end: EntryId, history: History, now: float) -> Leading:
        """Be the primary of the term that was chosen: all that this member has is applied.

        Args:
            end: the entry that the store ends with.
            history: the stream file.
            now: monotonic seconds.
        """
        assert self.role is Role.TAKING
        return self._lead(self.term, self._in_sync, end, history, now)

    def found(self, term: int, end: EntryId, history: History, now: float) -> Leading:
        """Be the primary of a store that has no register yet: this member serves alone, and makes it.

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
        """Whether this member calls itself primary, and another term is known: `follow` is to be called."""
        return self.leading is not None and self.leading.deposed

    @property
    def _votes(self) -> bool:
        """Whether it may have a part in ballots."""
        return self.eligible and self.identity.store != NO_STORE

    @property
    def primary(self) -> tuple[str, str]:
        """The other member's ID and address as the primary, as far as is known; empty where it is not."""
        view = self.view
        if view is None or view.primary == self.identity.member:
            return "", ""
        return view.primary, view.address

    # What comes in

    def link_ended(self, now: float) -> None:
        """The link to the other member has ended, as this one sees it; at `now`, monotonic seconds."""
        self._watch.ended(now)
        if self.leading is not None:
            self.leading.unreachable()

    def hear(self, message: ToMember, frames: Sequence[Buffer], now: float) -> bool:
        """A message of the other member.

        Args:
            message: as decoded.
            frames: those behind the body of an ENTRY.
            now: monotonic seconds.

        Returns:
            Whether it is one for this member: of the same server and store, from another member.

        Raises:
            DecodeError: its body or frames are not what they should be.
        """
        if not _is_for(self.identity, message):
            return False
        match message:
            case Entries() if self.leading is not None:
                self.leading.heard_of(message.term)
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
            self.proposer.cancel(now)  # There is a primary, and a later one than this attempt would replace.
        following.entries(message, entries, now)
        attempt = self.proposer.attempt
        if attempt is not None and attempt.kind == "hand" and attempt.view is None and not following.handed:
            self.proposer.cancel(now)

    def _followed(self, leading: Leading, message: Follow, now: float) -> None:
        view = self.proposer.view
        members = {self.identity.member} if view is None else set(view.members)
        if len(members | {message.member}) > MEMBERS_MAX:
            leading.heard_of(message.known)
            return
        leading.followed(message, now)

    def _forget(self, message: Forget, now: float) -> None:
        if message.done:
            self.readmission.forgotten(message)
            return
        if self.role is not Role.STANDBY:
            return  # Of two that call themselves primary one is deposed; neither helps the other to its view.
        self.proposer.forget(message.identity, now)
        me = self.identity
        self._said.append(Forget(me.server, me.store, me.member, message.identity, done=1))

    def vote(self, place: int, vote: Vote, now: float) -> None:
        """An answer of a proxy.

        Args:
            place: which one, in the order of the configuration.
            vote: as decoded.
            now: monotonic seconds.
        """
        if vote.store != self.identity.store:
            return
        proxy = self.proposer.proxies[place]
        self.view = self._accepted.hear(place, vote) or self.view
        self._watch.vote(place, vote, now)
        outcome = self.proposer.receive(proxy, vote, now)
        attempt = self.proposer.attempt
        if self.leading is not None:
            if attempt is not None and attempt.view is not None:
                self.leading.proposed(attempt.view.in_sync)
            if self.founding is not None:
                self.founding.receive(proxy, vote)
            else:
                self.readmission.receive(proxy, vote, now)
        self._become(outcome)

    def deposed_by(self, term: int) -> None:
        """A proxy knows a primary of this term."""
        if self.leading is not None:
            self.leading.heard_of(term)

    def _become(self, outcome: Outcome | None) -> None:
        match outcome:
            case Chosen(kind, view) if kind in _NEW_TERM:
                if self.following is not None:  # A later term, once heard of, ends an attempt.
                    self.view, self.term, self._in_sync = view, view.term, view.in_sync
                    self.role, self.registered = Role.TAKING, True
                    self.following.known = view.term
                    self._said.append(self.following.follow())  # A last word: so whom it replaces knows at once.
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
        """What is due by now, in monotonic seconds; ballots begin at the wall clock, milliseconds since 1970."""
        self._become(self.proposer.poll(now))
        if self.following is not None and self.role is Role.STANDBY:
            self._take_part(self.following, now, wall_ms)
        elif self.leading is not None and not self.leading.deposed:
            self._beat(self.leading, now)
            self._lead_on(self.leading, now, wall_ms)

    def _take_part(self, following: Following, now: float, wall_ms: int) -> None:
        if self.identity.store == NO_STORE:
            return
        token = self._watch.look(following.heard, now, known=bool(self.primary[0]))
        if token:
            self.proposer.look(token)
        if not self._votes:
            return
        silent = now - following.heard > self._times.patience + self._times.heartbeat / 2
        silent = silent or self._watch.lost(following.heard, now)
        kind = "hand" if following.handed else "take" if silent else "resume" if self.proposer.unsettled else ""
        if kind and self.proposer.may_begin(kind, now):
            self.proposer.begin(kind, now, wall_ms)

    def _beat(self, leading: Leading, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + self._times.beat
            leading.beat()
        if now >= self._look_at:
            self._look_at = now + self._times.heartbeat
            if self.founding is None:
                self.readmission.look()
            else:
                self.founding.look()
        leading.tick(now)

    def _lead_on(self, leading: Leading, now: float, wall_ms: int) -> None:
        """Ask the register for what the primary needs of it."""
        founding, view = self.founding, self.proposer.view
        if self.proposer.is_busy(leading.required, now):
            return
        if founding is not None:
            existing = founding.existing
            if existing is not None:
                self.view, leading.deposed = existing, True
            elif founding.done:
                self._propose("found", now, wall_ms)
            return
        wanted = leading.proposal(now)
        gone = view is not None and self._removing not in view.members
        # Who confirms more than was under way is not gone for good, and would be removed when it is next away.
        lives = now - self._removing_since > 2 * self._times.silence and leading.lag(now)[0]
        if gone or (lives and self._removing in leading.in_sync):
            self._removing = ""
        if self._removing and view is not None and view.in_sync == (self.identity.member,):
            self._propose("remove", now, wall_ms)
        elif wanted is not None:
            other = next((member for member in sorted(wanted) if member != self.identity.member), "")
            if self.kept or not other:
                self._propose("add" if other else "drop", now, wall_ms, other)

    def _propose(self, kind: str, now: float, wall_ms: int, other: str = "") -> None:
        if self.proposer.may_begin(kind, now):
            self.proposer.begin(kind, now, wall_ms, term=self.term, other=other)

    def deadline(self) -> float:
        """When `tick` or `outgoing` has something to do (monotonic seconds)."""
        due, following = self.proposer.deadline(), self.following
        if self.leading is not None:
            return min(due, self._beat_at, self._look_at)
        if following is not None and self.identity.store != NO_STORE:
            due = min(due, self._watch.deadline(following.heard, known=bool(self.primary[0])))
        return due if following is None else min(due, following.deadline())

    # What an operator asks

    def remove(self, member: str, now: float) -> bool:
        """Have a member that is gone for good removed, once it is not in sync any more; whether there is such a one."""
        view = self.proposer.view
        known = is_hex(member) and view is not None and member in view.members and member != self.identity.member
        if not known or self.leading is None:
            return False
        self._removing, self._removing_since = member, now
        return True

    # What goes out

    def to_proxies(self) -> list[tuple[int, ToProxy]]:
        """What is to be sent to the proxies, each by its place in the configuration."""
        said = self.proposer.outgoing
        out = [(self._places[whom], message) for whom, message in said if not isinstance(message, Forget)]
        said[:] = [one for one in said if isinstance(one[1], Forget)]
        return out

    def to_other(self, now: float) -> list[tuple[ToMember, list[Entry]]]:
        """What is to be sent to the other member, and the entries that travel behind it; none of it waits."""
        out: list[tuple[ToMember, list[Entry]]] = [(message, []) for message in self._said]
        self._said.clear()
        asked = self.proposer.outgoing
        out += [(message, []) for _, message in asked if isinstance(message, Forget)]
        asked[:] = [one for one in asked if not isinstance(one[1], Forget)]
        if self.leading is not None:
            out += self.leading.outgoing()
        elif self.following is not None and self.role is Role.STANDBY:
            for said in self.following.outgoing(now):
                # Who has confirmed a loop has all that it ever confirmed, and that was answered.
                self.eligible = self.eligible or (isinstance(said, Ack) and said.loop > 0)
                out.append((said, []))
        return out


def _is_for(me: Identity, message: ToMember) -> bool:
    """Whether another member of the same server and store says this, as far as its store is known."""
    ours = message.store == me.store or (isinstance(message, Follow) and message.store == NO_STORE)
    new = me.store == NO_STORE and isinstance(message, Entries)
    return message.sender == me.server and message.member != me.member and (ours or new)
