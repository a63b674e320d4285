"""The last resort, decided: a member that the register does not let serve becomes its only one, on an operator's word.

A failover does without it: there a member in sync takes over by itself (`proposer`).

It is for a store whose members in sync are gone for good, or most of whose proxies have lost their directories. All
proxies are asked how things stand (LOOK); then those with a vote promise a ballot that is far above all others, so that
whatever was under way comes too late (PREPARE, which a proxy that hears a primary refuses); then they accept a view of
this member alone, and those without a vote are given one (ADMIT). It is done when a majority of the proxies has that
view; until then the register says what it said, and the same may be tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.protocol.register import Accept, Admit, Look, Prepare, View, Vote, VoteOutcome
from pubsub.server.standby.election.proposer import Identity, Said, possibly_chosen, said_elsewhere

GENERATION: Final = 1 << 44
"""How far the ballot is above all that were heard of: some 500 years of milliseconds."""

Message = Look | Prepare | Accept | Admit


class Promotion:
    """One attempt.

    Args:
        identity: who is to serve; its member ID is a new one, which no proxy knows.
        before: the member ID that the directory had until now.
        proxies: those of the configuration, by address.
        patience: seconds for which a primary counts as heard.
        token: random.
        wall_ms: the wall clock, in milliseconds since 1970.

    Attributes:
        ballot: which the proxies are to promise; 0 before `prepare`.
    """

    def __init__(
        self, identity: Identity, before: str, proxies: Sequence[str], patience: float, token: int, wall_ms: int
    ) -> None:
        self._me, self._before, self._proxies, self._patience = identity, before, tuple(proxies), patience
        self._token, self._wall_ms = token, wall_ms
        self._majority = len(self._proxies) // 2 + 1
        self._votes: dict[str, Vote] = {}
        self.ballot = 0

    # Each step: the messages, then the votes; then `problem` says what stands against the next one

    def look(self) -> dict[str, Message]:
        """The first step: what there is."""
        me = self._me
        return {proxy: Look(me.server, me.store, self._token) for proxy in self._proxies}

    def prepare(self) -> dict[str, Message]:
        """The second step: promise. Only proxies with a vote are asked."""
        me, highest = self._me, max((max(one.promised, one.ballot) for one in self._votes.values()), default=0)
        self.ballot = max(self._wall_ms, highest) + GENERATION
        self._token += 1
        asked = [proxy for proxy, vote in self._votes.items() if vote.outcome is VoteOutcome.TOLD]
        # What was told promises nothing: without a majority of promises the store is left as it is. Else it would end
        # with an entry of a term that whoever serves need not go above, and hearing of it would depose that one.
        self._votes = {proxy: vote for proxy, vote in self._votes.items() if vote.outcome is VoteOutcome.NEW}
        return {proxy: Prepare(me.server, me.store, me.member, self.ballot, self._token, "take") for proxy in asked}

    def accept(self) -> dict[str, Message]:
        """The third step: accept, or take a row."""
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
        """An answer of a proxy; those to an earlier step, and of one proxy under two addresses, do not count.

        Returns:
            Whether it answers this step.
        """
        answers = vote.token == self._token and vote.store == self._me.store
        if answers and not said_elsewhere(self._votes, proxy, vote):
            self._votes[proxy] = vote
        return answers

    # What is known

    @property
    def in_sync(self) -> tuple[str, ...]:
        """The members in sync, as the latest view says that any proxy knows; () where none does."""
        views = [(vote.ballot, vote.view) for vote in self._votes.values() if vote.view is not None]
        return max(views, key=lambda one: one[0])[1].in_sync if views else ()

    def problem(self) -> str:
        """What stands against the next step, as a sentence without its subject; "" for nothing."""
        for proxy, vote in self._votes.items():
            if vote.outcome is VoteOutcome.HEARD or 0 <= vote.silence_ms < self._patience * 1000:
                return f"proxy {proxy} hears its primary: it serves, or has just ended"
            if vote.outcome is VoteOutcome.REFUSED:
                return f"proxy {proxy} has just promised something else: repeat this"
        if len(self._votes) < self._majority:
            silent = ", ".join(proxy for proxy in self._proxies if proxy not in self._votes)
            return f"{self._majority} of {len(self._proxies)} proxies must answer, and these do not: {silent}"
        told: list[Said] = [
            None if vote.view is None else (vote.ballot, vote.view)
            for vote in self._votes.values()
            if vote.outcome is VoteOutcome.TOLD and not self.ballot
        ]
        if len(told) >= self._majority:
            view = possibly_chosen(told, len(self._proxies), self._majority)
            if view is not None and self._before in view.in_sync:
                return f"member {self._before} is in sync: start it, and it takes over by itself"
        return ""

    @property
    def done(self) -> bool:
        """Whether a majority of the proxies has the new view."""
        having = [vote for vote in self._votes.values() if vote.view is not None and vote.view.term == self.ballot]
        return len(having) >= self._majority
