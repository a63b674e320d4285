"""The model's world: a network, its nodes, a clock, and the checks at the end."""

from __future__ import annotations

import collections
import heapq
import random
from collections.abc import Callable
from typing import Any

from tests.standby.model.ballots import possibly_chosen
from tests.standby.model.clients import Publisher, Subscriber
from tests.standby.model.faults import Faults
from tests.standby.model.member import Member
from tests.standby.model.network import Network
from tests.standby.model.node import Node
from tests.standby.model.proxies import Proxy
from tests.standby.model.rules import OTHER, PAIRED_WITHIN, RULES, SERVES_WITHIN, Rules
from tests.standby.model.topic import Elsewhere


class World(Faults, Network):
    """One run.

    Args:
        seed: the only input.
        rules: by name, False for an omitted one.
        trace: print the events.
    """

    proxy_class: type[Proxy] = Proxy
    member_class: type[Member] = Member
    fresh = False
    """Whether the register is yet to be founded when the run begins; in the model's own it never is."""

    def __init__(self, seed: int, rules: Rules, trace: bool = False) -> None:
        self.random, self.rules, self.trace = random.Random(seed), rules, trace
        self.now, self.queue, self.made, self.calm = 0, [], 0, False
        self.cut, self.objections, self.stats = set(), [], collections.Counter()
        self.loss, self.late = self.random.choice(((0, 0), (0.02, 0.02), (0.1, 0.08), (0.02, 0.15)))
        self.halves, self.tight = self.random.choice((0, 0, 0.3)), self.random.choice((0, 0, 0.15, 0.4))
        self.idle, self.slow = self.random.choice((0, 0, 0.9)), self.random.choice((0, 0.1))
        self.forgetful, self.pace = (
            self.random.choice((0.02, 0.02, 0.3)),
            self.random.choice(((5, 20, 50), (5, 20, 50), (3, 6, 12))),
        )
        count = self.random.choice((1, 2, 3, 3, 3, 3))
        self.scene = self.random.choice((*[""] * 10, "apart", "witnesses"))  # Two that chance alone finds too seldom.
        if self.scene:
            count = 3
        if self.scene == "apart":
            self.loss = self.late = self.tight = self.slow = 0
            self.idle = 0.9
        if self.scene == "witnesses":
            self.halves, self.pace, self.forgetful = 0.4, (3, 6, 20), self.random.choice((0, 0.15))
        self.move = self.random.choice(("", "", "", "give", "take"))
        self.proxies = [self.proxy_class(self, f"p{i}") for i in range(count)]
        self.members = [self.member_class(self, name) for name in OTHER]
        self.other = Elsewhere(self)
        self.clients = [Publisher(self, "x"), Publisher(self, "y"), Subscriber(self, "s")]
        self.nodes = {node.name: node for node in (*self.proxies, *self.members, self.other, *self.clients)}
        self.majority = count // 2 + 1
        self.end = 0  # the highest end of the log that any accepted answer has shown
        value = (0, 1, "A", ("A", "B"))
        for proxy in self.proxies:
            proxy.found(value)
        for node in self.nodes.values():
            node.start(first=True)

    def timer(self, node: Node, delay: int, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, self.fire, node, node.life, call, args)

    def fire(self, node: Node, life: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if node.up and node.life == life:
            call(*args)

    def run_until(self, when: int) -> None:
        queue = self.queue
        while queue and queue[0][0] <= when:
            self.now, _, call, args = heapq.heappop(queue)
            call(*args)
            if len(self.objections) > 5:
                return
        self.now = when

    def run(self) -> World:
        r = self.random
        self.at(r.randrange(1, 60) + 100 * (self.scene == "apart"), self.disturb)
        if self.scene == "apart":
            self.at(r.randrange(30, 60), self.part, "A", "p0", 100)
            for place, client in enumerate(self.clients):
                client.proxy = (1, 2, 0)[place]
        if self.move == "give":
            self.at(r.randrange(40, 200), self.start_move)
        if self.move == "take":
            self.at(r.randrange(10, 200), self.other.freeze)
        self.run_until(r.choice((100, 160, 250)))
        if len(self.objections) > 5:
            return self
        self.heal()
        begun = self.now
        if self.move == "give":
            for delay in (30, 80, 150):
                self.at(self.now + delay, self.start_move)
        if self.move == "take":
            self.at(self.now + 20, self.other.freeze)
        self.stats["not able"] += not self.able
        self.run_until(begun + 60)
        if not self.able:
            return self  # Too many proxies lost their data: the primary continues, the rest is an operator's matter.
        for client in self.clients:
            client.stop()
        while not self.settled() and self.now < begun + SERVES_WITHIN and len(self.objections) < 5:
            self.run_until(self.now + 10)
        self.stats["ticks to serve"] = max(self.stats["ticks to serve"], self.now - begun)
        if not self.settled():
            self.object("not served", [p.outbox for p in self.clients[:2]])
        while not self.paired() and self.now < begun + PAIRED_WITHIN and len(self.objections) < 5:
            self.run_until(self.now + 10)
        if not self.objections:
            self.check()
        return self

    def paired(self) -> bool:
        """Whether all is as it should be when nothing is missing."""
        found = self.primaries()
        if len(found) != 1 or found[0].busy:
            return False
        ours, theirs = found[0].state, self.other.state
        moved = not self.move or (theirs and theirs.given) or ours.given
        if not self.both:
            return bool(moved)
        mate = self.nodes[OTHER[found[0].name]]
        same = len(mate.history) == len(found[0].history)
        joined = set(found[0].in_sync) == {"A", "B"} and not any(p.new for p in self.proxies)
        return same and moved and joined and self.agreed(found[0])

    def agreed(self, primary: Member) -> bool:
        """Whether the register equals the primary's view, asked of all proxies."""
        said = [proxy.said() for proxy in self.proxies]
        value = possibly_chosen(said, len(self.proxies), self.majority, RULES)
        return value is not None and value[1:] == (primary.term, primary.name, ("A", "B"))

    def start_move(self) -> None:
        for member in self.members:
            member.freeze()

    def settled(self) -> bool:
        return not any(client.busy() for client in self.clients)

    def primaries(self) -> list[Member]:
        return [m for m in self.members if m.up and m.role == "primary" and m.state]

    def check(self) -> None:
        """The clients' history against the log that is served now."""
        found = self.primaries()
        if len(found) != 1:
            self.object("primaries", [(m.name, m.term) for m in found])
            return
        primary = found[0]
        if self.both and set(primary.in_sync) != {"A", "B"}:
            self.object("not in sync", primary.in_sync)
        if self.both and any(p.new for p in self.proxies):
            self.object("not readmitted")
        if self.both and set(primary.in_sync) == {"A", "B"}:
            mate = self.nodes[OTHER[primary.name]]
            if [e[0] for e in mate.history] != [e[0] for e in primary.history]:
                self.object("copies differ")
            if not self.agreed(primary):
                self.object("register differs", primary.term, primary.name, [proxy.said() for proxy in self.proxies])
        state = primary.state
        homes = [s for s in (state, self.other.state) if s and s.held and not s.given]
        if len(homes) != 1:
            self.object("homes", len(homes))
            return
        log = homes[0].log
        for client in self.clients:
            client.check(log, homes[0])
