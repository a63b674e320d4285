"""A random model of the deletion of a topic, when its name may be used again.

A deletion is a number for the name, kept at each proxy for good. A proxy sends its number along with each request. A
holder with a lower number drops its topic and begins anew, and so does the lower side of a merge. A deletion is
answered when every configured proxy has the number on its disk.

Checked: a message that was answered before a deletion began is not in the topic afterwards. A message put after the
last deletion was answered is there, once. Nothing is stuck. A put during a deletion may be on either side of it.

The name need not be refused while a deletion is under way: puts then go to the old topic or to the new one. A late
repeat of an old put is the danger. So a put to a name that was deleted before must name a log of the present topic.
Not modelled: subscriptions, restored copies, the refusal to delete a topic that has subscribers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from tests.topics.model.rules import LOOKING_BACK, all_but
from tests.topics.model.topic import Content, Topic

SERVERS: Final = 3
PROXIES: Final = 2
EVERYTHING: Final = all_but(LOOKING_BACK)

RULES: Final = {
    "all": "a deletion is answered when every configured proxy has its number on the disk",
    "carried": "a request carries the proxy's number, and a holder with a lower one drops its topic first",
    "lower": "in a merge, the side with the lower number is dropped",
    "named": "in a topic with a name that was deleted before, a put must name one of its logs",
    "previous": "a client that learns another log begins a new chain with its oldest unfinished put",
    "memory": "a proxy that lost its file forwards nothing until another proxy has sent it the number",
}


class Put(NamedTuple):
    """A put; `log` is that of the client's last answer, or ""."""

    publisher: str
    counter: int
    previous: int
    log: str


class Answer(NamedTuple):
    outcome: str
    log: str = ""


@dataclass
class Proxy:
    """Its number is on its disk, as long as it has the file."""

    number: int = 0
    up: bool = True
    ready: bool = True
    holders: set[int] = field(default_factory=set)


@dataclass
class Holder:
    """The topic at one server, and its number."""

    number: int
    topic: Topic


@dataclass
class Sent:
    """The steps at which a message was put and answered."""

    invoked: int
    answered: int = 0


class World:
    """One run."""

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock, self._logs = Random(seed), rules, 0, 0
        self.servers: list[Holder | None] = [None] * SERVERS
        self.proxies = [Proxy() for _ in range(PROXIES)]
        self.puts: dict[Content, Sent] = {}
        self.late: list[tuple[int, int, Put]] = []
        self.before_proxy: list[Put] = []
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()
        self.deletions: list[Sent] = []
        self.clients = [Client(self, "p0"), Client(self, "p1")]
        self.operator = Operator(self)

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def holders(self) -> list[int]:
        return [server for server, holder in enumerate(self.servers) if holder]

    # Requests

    def request(self, put: Put) -> Answer | None:
        """Send by way of a proxy; None if the request or its answer is lost or late."""
        fate = self.random.random()
        if fate < 0.12 or fate > 0.95:
            self.before_proxy.append(put)
        if fate < 0.15:
            return None
        answer = self.forward(self.random.choice(self.proxies), put)
        return None if fate < 0.35 else answer

    def forward(self, proxy: Proxy, put: Put) -> Answer | None:
        if not proxy.up or (self.rules["memory"] and not proxy.ready):
            return None
        known = sorted(server for server in proxy.holders if self.servers[server])
        server = self.random.choice(known) if known else self.random.randrange(SERVERS)
        proxy.holders.add(server)
        if self.random.random() < 0.1:
            self.late.append((server, proxy.number, put))
            return None
        return self.serve(server, proxy.number, put)

    def serve(self, server: int, number: int, put: Put) -> Answer | None:
        holder = self.servers[server]
        if holder is None or (holder.number < number and self.rules["carried"]):
            holder = self._begin(server, number)
        topic, last = holder.topic, holder.topic.last.get(put.publisher, 0)
        if put.log and put.log not in topic.logs:
            return Answer("gone", topic.open) if self.holders() == [server] else None
        if not put.log and holder.number and self.rules["named"]:
            return Answer("name the log", topic.open)
        if put.counter > last:
            if put.previous > last:
                return None
            topic.append(put.publisher, put.counter, (put.publisher, put.counter), self.now(), self.clock)
            self._check(holder, (put.publisher, put.counter))
        return Answer("success", topic.open)

    def _begin(self, server: int, number: int) -> Holder:
        self._logs += 1
        holder = self.servers[server] = Holder(number, Topic(f"L{self._logs}"))
        self.figures["topics begun"] += 1
        return holder

    def _check(self, holder: Holder, content: Content) -> None:
        sent, done = self.puts[content], self.deletions[: holder.number]
        if sent.answered and any(sent.answered < one.invoked for one in done):
            self.violations.append(("a deleted message is back", f"{content}"))

    # Proxies and servers

    def operate(self) -> None:
        random, proxy = self.random, self.random.choice(self.proxies)
        chance, holding = random.random(), self.holders()
        if chance < 0.3:
            if holding and proxy.up:
                self.announce(random.choice(holding), proxy)
        elif chance < 0.36:
            self._tell()
        elif chance < 0.6:
            self._stop_or_start(proxy)
        elif len(holding) > 1:
            self._merge(*random.sample(holding, 2))
        elif holding:
            self._merge(holding[0], random.choice([server for server in range(SERVERS) if server != holding[0]]))

    def announce(self, server: int, proxy: Proxy) -> None:
        """A holder tells a proxy that it has the topic; the proxy tells it its number."""
        holder = self.servers[server]
        if holder and holder.number < proxy.number and self.rules["carried"]:
            self.servers[server] = holder = None
        proxy.holders = {one for one in proxy.holders if self.servers[one]}
        if holder:
            proxy.number = max(proxy.number, holder.number)
            proxy.holders.add(server)

    def _tell(self) -> None:
        """Proxies that reach each other, by way of a server, tell their numbers."""
        if all(proxy.up for proxy in self.proxies):
            number = max(proxy.number for proxy in self.proxies)
            for proxy in self.proxies:
                proxy.number, proxy.ready = number, True

    def _stop_or_start(self, proxy: Proxy) -> None:
        if not proxy.up:
            proxy.up = True
            return
        proxy.up, proxy.holders = False, set()
        if self.random.random() < 0.5 and all(one.ready for one in self.proxies):
            proxy.number, proxy.ready = 0, False
            self.figures["files lost"] += 1

    def _merge(self, giver: int, receiver: int) -> None:
        given, held = self.servers[giver], self.servers[receiver]
        assert given is not None
        if held is None:
            held = self._begin(receiver, given.number)
        self.servers[giver] = None
        if given.number == held.number or not self.rules["lower"]:
            held.topic.merge(given.topic, EVERYTHING)
            held.number = max(given.number, held.number)
        elif given.number > held.number:
            self.servers[receiver] = given
        self.figures["merges"] += 1

    def run(self, steps: int) -> World:
        """In the end all proxies know the number, late messages arrive, and puts and deletions finish."""
        rate = self.random.choice((0.1, 0.3))
        for _ in range(steps):
            chance = self.random.random()
            if chance < rate:
                self.operate()
            elif chance < rate + 0.1:
                self._deliver_late()
            elif chance < rate + 0.2:
                self.operator.step()
            elif chance > 0.97:
                self.clients.append(Client(self, f"p{len(self.clients)}"))
            else:
                self.random.choice(self.clients[-3:]).step()
        for proxy in self.proxies:
            proxy.up = True
        self._tell()
        while self.late or self.before_proxy:
            self._deliver_late()
        for _ in range(100):
            self.operator.finish()
            self._settle()
            for client in self.clients:
                client.finish()
        self._judge()
        return self

    def _deliver_late(self) -> None:
        if self.late:
            self.serve(*self.late.pop(self.random.randrange(len(self.late))))
        if self.before_proxy:
            put = self.before_proxy.pop(self.random.randrange(len(self.before_proxy)))
            self.forward(self.random.choice(self.proxies), put)

    def _settle(self) -> None:
        for proxy in self.proxies:
            for server in self.holders():
                self.announce(server, proxy)
        while len(self.holders()) > 1:
            first, *_, last = self.holders()
            self._merge(last, first)

    def _judge(self) -> None:
        if any(client.outbox for client in self.clients):
            self.violations.append(("put stuck",))
        for server in self.holders():
            holder = self.servers[server]
            assert holder is not None
            found = [record.content for _, record in holder.topic.shown()]
            for content in found:
                self._check(holder, content)
            if len(found) != len(set(found)):
                self.violations.append(("doubled",))
            for content, sent in self.puts.items():
                promised = sent.answered and all(0 < one.answered < sent.invoked for one in self.deletions)
                if promised and content not in found:
                    self.violations.append(("lost", f"{content}"))


class Operator:
    """Deletes the topic now and then, and asks each proxy until the deletion is answered."""

    def __init__(self, world: World) -> None:
        self.world, self.number = world, 0
        self.confirmed: set[int] = set()

    def step(self) -> None:
        world = self.world
        index = world.random.randrange(PROXIES)
        proxy = world.proxies[index]
        if not proxy.up or not proxy.ready:
            return
        if not self.number:
            if world.random.random() < 0.3:
                self.number, self.confirmed = len(world.deletions) + 1, set()
                world.deletions.append(Sent(world.now()))
            return
        proxy.number = max(proxy.number, self.number)
        if world.random.random() < 0.7:
            self.confirmed.add(index)
        if len(self.confirmed) == (PROXIES if world.rules["all"] else 1):
            world.deletions[-1].answered = world.now()
            world.figures["deletions"] += 1
            self.number = 0

    def finish(self) -> None:
        while self.number:
            self.step()


class Client:
    """A publisher with up to three puts in flight, each with the one before it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.counter, self.previous, self.log = world, name, 0, 0, ""
        self.outbox: list[Put] = []

    def step(self) -> None:
        random = self.world.random
        if not self.outbox or (len(self.outbox) < 3 and random.random() < 0.3):
            self.counter += 1
            self.world.puts[self.name, self.counter] = Sent(self.world.now())
            self.outbox.append(Put(self.name, self.counter, self.previous, ""))
            self.previous = self.counter
        else:
            put = random.choice(self.outbox)
            self._settle(put, self.world.request(put._replace(log=self.log)))

    def _settle(self, put: Put, answer: Answer | None) -> None:
        """Take an answer; where the topic has no log that the client knows, a new chain begins."""
        if answer is None:
            return
        self.log = answer.log
        if answer.outcome == "success":
            # The chain shows that the puts before it are stored too.
            for one in [one for one in self.outbox if one.counter <= put.counter]:
                self.outbox.remove(one)
                self.world.puts[self.name, one.counter].answered = self.world.now()
        elif self.world.rules["previous"]:
            self.outbox[0] = self.outbox[0]._replace(previous=0)

    def finish(self) -> None:
        """Have the rest taken."""
        for _ in range(3):
            for put in list(self.outbox):
                if put in self.outbox:
                    proxy = self.world.random.choice(self.world.proxies)
                    self._settle(put, self.world.forward(proxy, put._replace(log=self.log)))
