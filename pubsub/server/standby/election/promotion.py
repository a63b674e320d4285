"""The last resort: on an operator's order, a member that the register does not let serve becomes the only member.

A failover does not need this: a member in sync takes over by itself (`proposer`). The last resort is for a store with
all members in sync lost permanently, or with most of its proxies' directories lost. It has three steps:

1. Ask all proxies for their state (LOOK).
2. Ask the proxies that have a vote to promise a ballot far above all others, so that all earlier ballots come too late
   (PREPARE). A proxy that hears a primary refuses.
3. Ask them to accept a view with this member alone, and give a row with that view to the proxies without a vote
   (ADMIT).

The promotion is done when a majority of the proxies has that view. Until then the register is unchanged, and the
operator may repeat the promotion.

The rule is docs/explanation/register.md, R11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.protocol.register import Accept, Admit, Look, Prepare, View, Vote, VoteOutcome
from pubsub.server.standby.election.proposer import AcceptedView, Identity, accepted_elsewhere, possibly_chosen

GENERATION: Final = 1 << 44
"""Distance of the ballot above all known ballots: some 500 years of milliseconds."""

Message = Look | Prepare | Accept | Admit


class Promotion:
    """One attempt.

    Args:
        identity: of the member to promote. Its member ID is new, so no proxy knows it.
        before: the member ID that the directory had until now.
        proxies: addresses of the configured proxies.
        patience: seconds for which a primary counts as heard.
        token: random.
        wall_ms: the wall clock, in milliseconds since 1970.

    Attributes:
        ballot: the ballot that the proxies are to promise; 0 before `prepare`.
    """

    def __init__(
        self, identity: Identity, before: str, proxies: Sequence[str], patience: float, token: int, wall_ms: int
    ) -> None:
        self._me, self._before, self._proxies, self._patience = identity, before, tuple(proxies), patience
        self._token, self._wall_ms = token, wall_ms
        self._majority = len(self._proxies) // 2 + 1
        self._votes: dict[str, Vote] = {}
        self.ballot = 0

    # A step returns its messages. When the votes are received, `problem` names the reason against the next step.

    def look(self) -> dict[str, Message]:
        """First step: ask for the proxies' state."""
        me = self._me
        return {proxy: Look(me.server, me.store, self._token) for proxy in self._proxies}

    def prepare(self) -> dict[str, Message]:
        """Second step: ask the proxies that have a vote for a promise."""
        me, highest = self._me, max((max(one.promised, one.ballot) for one in self._votes.values()), default=0)
        self.ballot = max(self._wall_ms, highest) + GENERATION
        self._token += 1
        asked = [proxy for proxy, vote in self._votes.items() if vote.outcome is VoteOutcome.REPORTED]
        # An answer to the look is no promise, so it is dropped here. Without a majority of promises the store must stay
        # unchanged. Otherwise its last entry would have a term that a serving primary need not exceed, and that
        # primary would be deposed when it hears of the term.
        self._votes = {proxy: vote for proxy, vote in self._votes.items() if vote.outcome is VoteOutcome.NEW}
        return {proxy: Prepare(me.server, me.store, me.member, self.ballot, self._token, "takeover") for proxy in asked}

    def accept(self) -> dict[str, Message]:
        """Third step: ask for acceptance, and give a row to each proxy without a vote."""
        me, alone = self._me, (self._me.member,)
        view = View(self.ballot, me.member, me.address, alone, alone)
        self._token += 1
        out: dict[str, Message] = {}
        for proxy, vote in self._votes.items():
            if vote.outcome is VoteOutcome.PROMISED:
                out[proxy] = Accept(me.server, me.store, me.member, self.ballot, self._token, view)
            elif vote.outcome is VoteOutcome.NEW:
                admit = Admit(me.server, me.store, self._token, vote.identity, self.ballot, self.ballot, view)
                out[proxy] = admit
        return out

    def receive(self, proxy: str, vote: Vote) -> bool:
        """Record an answer of a proxy.

        Answers to an earlier step do not count, nor does a second address of the same proxy.

        Returns:
            True if the answer is for the current step.
        """
        answers = vote.token == self._token and vote.store == self._me.store
        if answers and not accepted_elsewhere(self._votes, proxy, vote):
            self._votes[proxy] = vote
        return answers

    # Results

    @property
    def in_sync(self) -> tuple[str, ...]:
        """The in-sync members of the latest view that any proxy knows; () if no proxy knows a view."""
        views = [(vote.ballot, vote.view) for vote in self._votes.values() if vote.view is not None]
        return max(views, key=lambda one: one[0])[1].in_sync if views else ()

    def problem(self) -> str:
        """Return the reason against the next step, as a sentence without its subject; "" if there is none."""
        for proxy, vote in self._votes.items():
            if vote.outcome is VoteOutcome.PRIMARY_ALIVE or 0 <= vote.silence_ms < self._patience * 1000:
                return f"proxy {proxy} receives heartbeats of its primary: it serves, or has just ended"
            if vote.outcome is VoteOutcome.REFUSED:
                return f"proxy {proxy} has just promised something else: repeat this"
        if len(self._votes) < self._majority:
            silent = ", ".join(proxy for proxy in self._proxies if proxy not in self._votes)
            return f"{self._majority} of {len(self._proxies)} proxies must answer, and these do not: {silent}"
        told: list[AcceptedView] = [
            None if vote.view is None else (vote.ballot, vote.view)
            for vote in self._votes.values()
            if vote.outcome is VoteOutcome.REPORTED and not self.ballot
        ]
        if len(told) >= self._majority:
            view = possibly_chosen(told, len(self._proxies), self._majority)
            if view is not None and self._before in view.in_sync:
                return f"member {self._before} is in sync: start it, and it takes over by itself"
        return ""

    @property
    def done(self) -> bool:
        having = [vote for vote in self._votes.values() if vote.view is not None and vote.view.term == self.ballot]
        return len(having) >= self._majority
