"""Members and proxies with the real register; tests deliver the messages between them."""

from __future__ import annotations

from random import Random

from pubsub.protocol import decode, encode
from pubsub.protocol.register import Forget, View, Vote
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.election.proposer import Identity, Outcome, Proposer

STORE, A, B = "5" * 16, "a" * 16, "b" * 16
BOTH = View(100, A, "tcp://a:1", (A, B), (A, B))
ALONE = View(100, A, "tcp://a:1", (A, B), (A,))
TAKEN = View(200, B, "tcp://b:1", (A, B), (B,))
WALL = 1000


class Cast:
    """Some proxies with their registers, and members that ask them; tests deliver the messages."""

    def __init__(self, view: View | None = BOTH, proxies: int = 3, ballot: int = 100) -> None:
        self.names = [f"p{number}" for number in range(proxies)]
        rows = [] if view is None else [RegisterRow(STORE, ballot, ballot, view, "s1")]
        self.proxies = {
            name: Registers(name, f"{place:016x}", rows, RouteChanges(), patience=3.0)
            for place, name in enumerate(self.names)
        }
        self.now = 50.0

    def member(self, member: str, term: int = 0) -> Proposer:
        identity = Identity("s1", STORE, member, f"tcp://{member[0]}:1")
        return Proposer(identity, self.names, heartbeat=1.0, sticky=3.0, random=Random(member))

    def answers(self, member: Proposer, *proxies: str) -> list[tuple[str, Vote]]:
        """The answers of these proxies to the member's messages; its messages to others are lost."""
        sent, member.outgoing[:] = list(member.outgoing), []
        votes = []
        for name, message in sent:
            assert not isinstance(message, Forget)
            if name in (proxies or self.names):
                votes.append((name, decode(*encode(self.proxies[name].handle(decode(*encode(message)), self.now)))))
        return votes

    def round(self, member: Proposer, *proxies: str) -> Outcome | None:
        """One message to these proxies, to all where none is named, and their answers."""
        outcomes = [member.receive(name, vote, self.now) for name, vote in self.answers(member, *proxies)]
        return next((outcome for outcome in outcomes if outcome is not None), None)

    def carry(self, member: Proposer, *proxies: str) -> Outcome | None:
        """All of an attempt with these proxies."""
        outcome = None
        while outcome is None and member.outgoing:
            outcome = self.round(member, *proxies)
        member.outgoing.clear()
        return outcome

    def begin(self, member: Proposer, kind: str, wall_ms: int = WALL, term: int = 100, other: str = B) -> None:
        member.begin(kind, self.now, wall_ms, term=term, other=other)

    def attempt(self, member: Proposer, kind: str, *proxies: str, **given: int) -> Outcome | None:
        self.begin(member, kind, **given)
        return self.carry(member, *proxies)

    def views(self) -> list[View]:
        return [proxy.rows[STORE].view for proxy in self.proxies.values()]
