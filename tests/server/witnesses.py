"""A model of witnesses: when may a server believe that no other one holds acknowledged messages of a topic?

One topic, N proxies, three servers. A server that begins the topic is heard of by some proxies and not by others, dies,
starts anew, and gives the topic away. It acknowledges nothing before enough proxies have it on their disks; it is the
sole owner where enough proxies know of no other holder. The check: no other server has acknowledged anything then.

    python -m tests.server.witnesses            every rule, and then each left out

The rules are those of docs/explanation/ownership.md, O8; docs/explanation/sole-ownership.md, W2 and W3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pubsub.server.ownership.proxies import quorums

SERVERS: Final = 3
STEPS: Final = 400


@dataclass(frozen=True)
class Rules:
    """What holds; each can be left out.

    Attributes:
        witnesses: proxies that must have heard of a holder: (N + 1) // 2 of N.
        majority: proxies that must know of no other holder: N // 2 + 1 of N.
        noted: which topics lack witnesses is durable.
        awaited: who gives a topic away holds it until the receiver has its witnesses.
    """

    witnesses: Callable[[int], int] = lambda proxies: quorums(proxies)[0]
    majority: Callable[[int], int] = lambda proxies: quorums(proxies)[1]
    dirty: bool = True
    awaited: bool = True


LEFT_OUT: Final = {
    "one witness is enough": Rules(witnesses=lambda proxies: 1),
    "half of the proxies are asked": Rules(majority=lambda proxies: max(1, proxies // 2)),
    "which topics lack witnesses is forgotten": Rules(dirty=False),
    "a topic is given to a server without witnesses": Rules(awaited=False),
}


@dataclass
class Holder:
    """One server. All but `up` and `heard` is on its disk.

    Attributes:
        unheard: too few proxies have heard that it holds the topic.
        heard: proxies that have confirmed so in this life.
        acknowledged: whether somebody was told that something of it is stored.
        giver: the server that gives it the topic.
    """

    up: bool = True
    holds: bool = False
    unconfirmed: bool = False
    acknowledged: bool = False
    giver: int | None = None
    heard: set[int] = field(default_factory=set)


class Model:
    """One run.

    Args:
        seed: all that is drawn.
        proxies: how many there are.
        rules: what holds.
    """

    def __init__(self, seed: int, proxies: int, rules: Rules) -> None:
        self.random, self.rules = Random(seed), rules
        self.servers = [Holder() for _ in range(SERVERS)]
        self.up = [True] * proxies
        self.knows: list[set[int]] = [set() for _ in range(proxies)]
        self.cut: set[tuple[int, int]] = set()
        self.asked = 0

    def run(self) -> str:
        """What was wrong; "" where nothing was."""
        steps = (self.begin, self.announce, self.announce, self.answer, self.die, self.start, self.part, self.give)
        for _ in range(STEPS):
            self.random.choice(steps)()
            found = self.ask()
            if found:
                return found
        return ""

    def _reaches(self, server: int, proxy: int) -> bool:
        return self.servers[server].up and self.up[proxy] and (server, proxy) not in self.cut

    def _any(self, *, holds: bool) -> int | None:
        found = [n for n, one in enumerate(self.servers) if one.up and one.holds == holds]
        return self.random.choice(found) if found else None

    def begin(self) -> None:
        """A proxy that knows of no holder has a server begin the topic."""
        proxy, server = self.random.randrange(len(self.up)), self._any(holds=False)
        if server is not None and self._reaches(server, proxy) and not self.knows[proxy]:
            self._comes(server)

    def _comes(self, server: int, giver: int | None = None) -> None:
        one = self.servers[server]
        one.holds, one.unconfirmed, one.giver, one.heard = True, True, giver, set()

    def announce(self) -> None:
        """A holder reaches one proxy, which writes that down and confirms it, or the confirmation gets lost."""
        server, proxy = self._any(holds=True), self.random.randrange(len(self.up))
        if server is not None and self._reaches(server, proxy):
            self.knows[proxy].add(server)
            if self.random.random() < 0.8:
                self.servers[server].heard.add(proxy)

    def answer(self) -> None:
        """A holder acknowledges, if enough have heard of it; its giver then holds the topic no more."""
        server = self._any(holds=True)
        if server is None:
            return
        one = self.servers[server]
        if one.unconfirmed and len(one.heard) < self.rules.witnesses(len(self.up)):
            return
        one.unconfirmed = False
        giver = self.servers[one.giver] if one.giver is not None else None
        if giver is None:
            one.acknowledged = True
        elif giver.up:
            self._leaves(one, giver)

    @staticmethod
    def _leaves(one: Holder, giver: Holder) -> None:
        one.acknowledged = one.acknowledged or giver.acknowledged
        one.giver, giver.holds, giver.acknowledged = None, False, False

    def die(self) -> None:
        """A process dies."""
        place = self.random.randrange(SERVERS + len(self.up))
        if place < SERVERS:
            self.servers[place].up = False
        else:
            self.up[place - SERVERS] = False

    def start(self) -> None:
        """Those that are down start anew."""
        for one in self.servers:
            if not one.up and self.random.random() < 0.5:
                one.up, one.heard = True, set()
                one.unconfirmed = one.unconfirmed and self.rules.dirty
        self.up = [up or self.random.random() < 0.5 for up in self.up]

    def part(self) -> None:
        """Some do not reach each other any more, and others do again."""
        pairs = [(server, proxy) for server in range(SERVERS) for proxy in range(len(self.up))]
        self.cut = {pair for pair in pairs if self.random.random() < self.random.choice((0.0, 0.3, 0.6))}

    def give(self) -> None:
        """A holder that has its witnesses gives the topic to another server."""
        giver, server = self._any(holds=True), self._any(holds=False)
        if giver is None or server is None or self.servers[giver].unconfirmed or self.servers[giver].giver is not None:
            return
        if any(one.giver == giver for one in self.servers):
            return
        self._comes(server, giver)
        if not self.rules.awaited:
            self._leaves(self.servers[server], self.servers[giver])

    def ask(self) -> str:
        """Some server asks whether it is the sole owner; what it would wrongly believe."""
        server = self.random.randrange(SERVERS)
        answers = [self.knows[proxy] - {server} for proxy in range(len(self.up)) if self._reaches(server, proxy)]
        if any(self._may_still_hold(answer) for answer in answers):
            return ""
        if len(answers) < self.rules.majority(len(self.up)):
            return ""
        self.asked += 1
        others = [n for n, one in enumerate(self.servers) if n != server and one.acknowledged]
        return f"server {server} believes to be the sole owner beside {others}" if others else ""

    def _may_still_hold(self, named: set[int]) -> bool:
        """Whether a proxy names another holder: one that gave the topic away has said so to every proxy it reaches."""
        return any(self.servers[other].holds for other in named)


def tried(rules: Rules, runs: int, first: int = 0) -> tuple[int, int, str]:
    """Runs that found something, questions that were answered with yes, and the first finding."""
    found, asked, text = 0, 0, ""
    for seed in range(first, first + runs):
        model = Model(seed, 1 + seed % 5, rules)
        finding = model.run()
        asked += model.asked
        if finding:
            found, text = found + 1, text or f"seed {seed}: {finding}"
    return found, asked, text


if __name__ == "__main__":
    print("every rule", *tried(Rules(), 5_000))
    for title, rules in LEFT_OUT.items():
        print(title, *tried(rules, 1_000))
