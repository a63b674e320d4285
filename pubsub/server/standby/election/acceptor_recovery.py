"""Gives proxies their row of the register: when it is founded, and when a proxy has lost its data.

A proxy without its row has no vote (`proxy.register`), because it may have forgotten its promises. At every heartbeat
the primary checks which proxies have no vote. It gives such a proxy its vote back in three steps:

    forget    Every member ends all attempts that may count an answer from the proxy's earlier life (FORGET). A member
              that starts again has none. The lost promises then bind nobody.
    look      Of n proxies, n - majority + 1 others report what they promised and accepted. Each majority with the lost
              proxy includes one of these, so no chosen view is missed.
    admit     The proxy takes the highest promise and view of these, unless it has lost its data again since the look.

Each look repeats the steps that are not done. With one proxy there are no others to ask, and it stays without a vote
until an operator gives it one (`reset`).

A register is founded when all proxies receive their rows. The first view has a single member, and only that member
could have proposed a view.

The rules are those of docs/explanation/register.md, R10 and R18.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pubsub.protocol.register import Admit, Forget, Look, View, Vote, VoteOutcome
from pubsub.server.standby.election.proposer import Proposer, accepted_elsewhere

if TYPE_CHECKING:
    from random import Random


@dataclass(slots=True)
class _Lost:
    """A proxy that has lost its data.

    Attributes:
        identity: of its new routes file.
        token: of the looks that count for this proxy.
        forgotten: the members that have forgotten its earlier life.
        told: promises and accepted views that other proxies reported after all members had forgotten that life.
    """

    identity: str
    token: int
    forgotten: dict[str, None]
    told: dict[str, Vote] = field(default_factory=dict)


class AcceptorRecovery:
    """The primary's part of the recovery. The other member's part is `Proposer.forget`.

    Args:
        proposer: of this member.
        random: for tokens.
    """

    def __init__(self, proposer: Proposer, random: Random) -> None:
        self._proposer, self._random = proposer, random
        self._me, self._proxies, self._send = proposer.identity, proposer.proxies, proposer.outgoing
        self._token = -1
        self._lost: dict[str, _Lost] = {}
        self.outcomes: dict[str, VoteOutcome] = {}
        """Each proxy's answer to the last look: with REPORTED it has a vote, with NEW it has none. A silent proxy is
        missing."""

    @property
    def lost(self) -> Iterable[str]:
        """The proxies that have lost their data and have no vote yet."""
        return self._lost.keys()

    def look(self) -> None:
        """Ask all proxies whether they have a vote, and repeat unanswered steps. Called at every heartbeat."""
        self._token = self._random.getrandbits(63)
        self.outcomes = {}
        for proxy in self._proxies:
            self._send.append((proxy, Look(self._me.server, self._me.store, self._token)))
        for proxy, lost in self._lost.items():
            self._go_on(proxy, lost)

    def receive(self, proxy: str, vote: Vote, now: float) -> None:
        """Process any answer of a proxy. Answers to attempts have no effect here.

        Args:
            proxy: address of the proxy.
            vote: as decoded.
            now: the monotonic clock, in seconds.
        """
        if proxy not in self._proxies:
            return
        if vote.token == self._token:
            self.outcomes[proxy] = vote.outcome
            if vote.outcome is VoteOutcome.NEW:
                self._new(proxy, vote.identity, now)
            elif vote.outcome is VoteOutcome.REPORTED:
                self._lost.pop(proxy, None)
        elif vote.outcome is VoteOutcome.REPORTED:
            for lost_proxy, lost in self._lost.items():
                if vote.token == lost.token and proxy != lost_proxy and not accepted_elsewhere(lost.told, proxy, vote):
                    lost.told[proxy] = vote
                    self._admit(lost_proxy, lost)

    def forgotten(self, message: Forget) -> None:
        """Record that the other member has forgotten a proxy's earlier life."""
        for proxy, lost in self._lost.items():
            if lost.identity == message.identity and message.done:
                lost.forgotten[message.member] = None
                self._go_on(proxy, lost)

    def reset(self, wall_ms: int) -> str:
        """Give the only proxy its vote back on an operator's order, since no other proxy can report its promises.

        Earlier requests then come too late at that proxy. All members have forgotten its earlier life, and the new row
        promises more than any ballot that this member knows.

        Args:
            wall_ms: the wall clock, in milliseconds since 1970.

        Returns:
            The reason against it at present, as one word. "" if the row is there or on its way; a repeat finds it done.
        """
        if len(self._proxies) != 1:
            return "other_proxies_report_its_promises"
        (proxy,) = self._proxies
        if self.outcomes.get(proxy) is VoteOutcome.REPORTED:
            return ""
        lost, view, me = self._lost.get(proxy), self._proposer.view, self._me
        if lost is None or view is None:
            return "the_proxy_has_not_reported_a_missing_vote"
        if missing := [member for member in view.members if member not in lost.forgotten]:
            return f"member_{missing[0]}_has_not_answered"
        promised = max(wall_ms, self._proposer.highest + 1)
        self._send.append((proxy, Admit(me.server, me.store, lost.token, lost.identity, promised, view.term, view)))
        return ""

    def end(self) -> None:
        """Stop the recovery: this member is no longer the primary."""
        self._lost.clear()
        self._token = -1

    def _new(self, proxy: str, identity: str, now: float) -> None:
        known = self._lost.get(proxy)
        if known is not None and known.identity == identity:
            return
        self._proposer.forget(identity, now)
        lost = _Lost(identity, self._random.getrandbits(63), {self._me.member: None})
        self._lost[proxy] = lost
        self._go_on(proxy, lost)

    def _go_on(self, proxy: str, lost: _Lost) -> None:
        view = self._proposer.view
        missing = [member for member in (view.members if view is not None else ()) if member not in lost.forgotten]
        for member in missing:
            self._send.append((member, Forget(self._me.server, self._me.store, self._me.member, lost.identity)))
        if view is not None and not missing:
            others = [other for other in self._proxies if other != proxy]
            self._send.extend((other, Look(self._me.server, self._me.store, lost.token)) for other in others)

    def _admit(self, proxy: str, lost: _Lost) -> None:
        if len(lost.told) < len(self._proxies) - self._proposer.majority + 1:
            return
        promised = max(vote.promised for vote in lost.told.values())
        best = max(lost.told.values(), key=lambda vote: vote.ballot)
        assert best.view is not None
        me = self._me
        self._send.append(
            (proxy, Admit(me.server, me.store, lost.token, lost.identity, promised, best.ballot, best.view))
        )


class Founding:
    """Gives all proxies the first row of a register. No other member may be added before that is done.

    Args:
        proposer: of the only member.
        term: under which that member serves.
        random: for the token.
    """

    def __init__(self, proposer: Proposer, term: int, random: Random) -> None:
        self._me, self._proxies, self._send = proposer.identity, proposer.proxies, proposer.outgoing
        self._term, self._token = term, random.getrandbits(63)
        self._votes: dict[str, Vote] = {}

    @property
    def existing(self) -> View | None:
        """A view with another member: the register was founded before, and this member must not found it."""
        views = [vote.view for vote in self._votes.values() if vote.view is not None]
        return next((view for view in views if view.members != (self._me.member,)), None)

    @property
    def done(self) -> bool:
        """True if all proxies have their rows. An attempt "bootstrap" can then be chosen."""
        having = [proxy for proxy, vote in self._votes.items() if vote.view is not None]
        return len(having) == len(self._proxies) and self.existing is None

    def look(self) -> None:
        """Ask all proxies. Called at every heartbeat until the first view is chosen: a proxy may lose its row before
        that."""
        for proxy in self._proxies:
            self._send.append((proxy, Look(self._me.server, self._me.store, self._token)))

    def receive(self, proxy: str, vote: Vote) -> None:
        if vote.token != self._token or proxy not in self._proxies:
            return
        first = proxy not in self._votes or vote.outcome is VoteOutcome.NEW
        self._votes[proxy] = vote
        if first and len(self._votes) == len(self._proxies) and self.existing is None:
            self._admit()

    def _admit(self) -> None:
        """Send the first row. All proxies have answered, and none knows another member."""
        me, alone = self._me, (self._me.member,)
        view = View(self._term, me.member, me.address, alone, alone)
        for proxy, vote in self._votes.items():
            if vote.outcome is VoteOutcome.NEW:
                admit = Admit(me.server, me.store, self._token, vote.identity, 0, self._term, view)
                self._send.append((proxy, admit))
