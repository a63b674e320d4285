"""The faults of the model's world, and their end."""

from __future__ import annotations

import heapq

from tests.standby.model.ballots import possibly_chosen
from tests.standby.model.node import Node
from tests.standby.model.proxies import Proxy
from tests.standby.model.rules import OTHER, RULES


class Faults:
    def disturb(self) -> None:
        """One fault, or the end of one."""
        r, chance = self.random, self.random.random()
        if self.scene == "witnesses":
            chance = r.choice((0.1, 0.1, 0.5))
        names = ["A", "B", *(p.name for p in self.proxies)]
        if r.random() < self.forgetful:
            proxy = r.choice(self.proxies)
            if not any(p.new for p in self.proxies):
                self.crash(proxy, True)
                proxy.lose_disk()
                self.say(proxy.name, "loses its disk")
        elif chance < 0.3:
            single = r.choice("AB"), r.choice(self.proxies).name
            one, two = single if self.scene == "witnesses" else r.choice((r.sample(names, 2), ("A", "B"), single))
            pairs = ((one, two), (two, one)) if r.random() < 0.6 else ((one, two),)
            self.cut.update(pairs)
            self.at(self.now + r.choice((20, 60, 200)), self.cut.difference_update, pairs)
        elif chance < 0.38:
            self.part(r.choice("AB"), r.choice(self.proxies).name, r.choice((60, 200)))
        elif chance < 0.7:
            node = r.choice(self.members + self.members + self.proxies)
            self.crash(node, r.random() < 0.4)
            if node.name in OTHER and r.random() < 0.25:
                self.crash(self.nodes[OTHER[node.name]], True)
        elif chance < 0.8:
            for member in self.members:
                member.switch()
        elif chance < 0.9:
            r.choice(self.members).full = r.randrange(1, 4)
        else:
            self.nodes[r.choice("AB")].trim()
        self.at(self.now + r.choice(self.pace), self.disturb)

    def part(self, one: str, friend: str, ticks: int) -> None:
        """A member and one proxy are alone with each other."""
        names = ["A", "B", *(p.name for p in self.proxies)]
        pairs = [p for n in names if n not in (one, friend) for m in (one, friend) for p in ((m, n), (n, m))]
        self.cut.update(pairs)
        self.at(self.now + ticks, self.cut.difference_update, pairs)

    def enough_vote(self, live: list[Proxy]) -> bool:
        return sum(not proxy.new for proxy in live) >= self.majority

    def crash(self, node: Node, power: bool) -> None:
        if node.up:
            self.say(node.name, "loses power" if power else "is killed")
            node.crash(power)
        if not self.calm:
            self.at(self.now + self.random.choice((2, 10, 40, 120)), node.start)

    def heal(self) -> None:
        """No more faults; perhaps a member and a minority of proxies are gone for good."""
        self.calm, r = True, self.random
        self.cut.clear()
        self.queue = [e for e in self.queue if e[2] not in (self.deliver, self.disturb)]
        heapq.heapify(self.queue)
        for member in self.members:
            member.full = 0
        gone = set(
            r.sample([p.name for p in self.proxies], len(self.proxies) - self.majority) if r.random() < 0.3 else ()
        )
        for proxy in self.proxies:
            if proxy.name in gone:
                proxy.crash(True)
                proxy.life += 1000
        live = [p for p in self.proxies if p.name not in gone]
        self.lost = ""
        if r.random() < 0.5:
            said = [p.said() for p in live if not p.new]
            value = possibly_chosen(said, len(self.proxies), self.majority, RULES | {}) if said else None
            name = r.choice("AB")
            enough = self.enough_vote(live)
            if value and enough and OTHER[name] in value[3]:
                self.lost = name
                self.nodes[name].crash(r.random() < 0.5)
                self.nodes[name].life += 1000
        for node in (*live, *self.members):
            if node.name != self.lost and not node.up:
                node.start()
        self.new = [p.name for p in live if p.new]
        self.able = self.enough_vote(live)
        apart = () if self.lost else r.choice(((),) * 6 + ((("A", "B"),), (("B", "A"),), (("A", "B"), ("B", "A"))))
        self.cut.update(apart)  # This link stays so for good: one of them has to serve alone.
        self.both = not self.lost and not apart and len(live) == len(self.proxies)
        self.say("HEALED, gone:", gone, self.lost, "cut for good:", apart)
