"""The world of the model: up to four servers that may hold the topic at once, late and lost requests, publishers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.server.continuing.directories import Name
from tests.server.continuing.messages import Answer, Get, Message, Put, Subscribe
from tests.server.continuing.topic import SKEW, Content, Entry, Leg, Topic

SERVERS: Final = 4


@dataclass
class Sent:
    """When something was put, answered and taken."""

    invoked: int
    answered: int = 0
    taken: int = 0


class World:
    """One run.

    Args:
        rules: those that hold.
    """

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock = Random(seed), rules, 0
        self.topics: list[Topic | None] = [None] * SERVERS
        self.frozen: dict[int, int] = {}
        self._logs = 0
        self.skew = [self.random.randrange(SKEW) for _ in range(SERVERS)]
        self.late: list[tuple[int, Message]] = []
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()
        self.puts: dict[Content, Sent] = {}
        self.publishers = [Publisher(self, f"p{n}") for n in range(2)]
        self.names = [Name(self, f"x{n}") for n in range(3)]
        self.settle = self.random.choice((0.2, 0.6, 0.9, 0.99))

    def now(self) -> int:
        """The next step's time."""
        self.clock += 1
        return self.clock

    def holders(self) -> list[int]:
        """Servers that hold the topic."""
        return [server for server, topic in enumerate(self.topics) if topic]

    def _whole(self, server: int, rule: str) -> bool:
        return not self.rules[rule] or self.holders() == [server]

    def _topic(self, server: int) -> Topic:
        topic = self.topics[server]
        if topic is None:
            self._logs += 1
            topic = self.topics[server] = Topic(f"L{self._logs}")
        return topic

    # Requests

    def request(self, message: Message) -> Answer | None:
        """Send to any server; None where request or answer is lost or late."""
        holders = self.holders()
        near = holders and self.random.random() < self.settle
        server = self.random.choice(holders) if near else self.random.randrange(SERVERS)
        fate = self.random.random()
        if fate < 0.1:
            self.late.append((server, message))
        if fate < 0.15:
            return None
        answer = self.serve(server, message)
        return None if fate < 0.3 else answer

    def serve(self, server: int, message: Message) -> Answer | None:
        """Have a server take a message now."""
        if server in self.frozen or (self.topics[server] is None and isinstance(message, Get)):
            return None
        topic, time = self._topic(server), self.now() + self.skew[server]
        if isinstance(message, Put):
            return self._put(topic, time, message)
        if isinstance(message, Subscribe):
            return self._subscribe(server, topic, time, message)
        return self._get(topic, message)

    def _put(self, topic: Topic, time: int, put: Put) -> Answer | None:
        publisher, counter = put.content
        last = topic.last.get(publisher, 0)
        if counter > last:
            if put.previous > last:
                return None
            topic.append(put.content, time)
            self.puts[put.content].taken = self.clock
        return Answer("success", number=counter)

    def _subscribe(self, server: int, topic: Topic, time: int, asked: Subscribe) -> Answer | None:
        entry, rules = topic.entries.get(asked.name), self.rules
        if entry is not None and asked.number < entry.number:
            return Answer("superseded", number=entry.number)
        if entry is None or asked.number > entry.number:
            keeps = asked.on and not asked.fresh and rules["continue"]
            here = entry is not None and entry.on
            if keeps and not self._whole(server, "whole_here" if here else "whole_made"):
                return None
            if keeps and entry is not None and here:
                if rules["mark"] and (rules["again"] or not entry.continued):
                    topic.mark(entry)
                entry.continued = True
                entry.number = asked.number if rules["fence"] else entry.number
                self.figures["continued"] += 1
            else:
                legs = [Leg(topic.open, topic.end)] if asked.on else []
                entry = Entry(asked.number, asked.on, time, legs, (topic.open, topic.end - 1))
                topic.entries[asked.name] = entry
        return Answer("success", entry.acknowledged, entry.number)

    def _get(self, topic: Topic, get: Get) -> Answer | None:
        entry = topic.entries.get(get.name)
        if entry is not None and get.number < entry.number:
            return Answer("superseded", number=entry.number)
        if entry is None or not entry.on or get.number != entry.number:
            return None
        for index, leg in enumerate(entry.legs):
            if leg.holds(get.last):
                entry.legs = [replace(leg, low=get.last[1] + 1), *entry.legs[index + 1 :]]
                entry.acknowledged = get.last
                break
        else:
            if get.last != entry.acknowledged:
                return Answer("behind")
        found = topic.read(entry.legs, get.after if get.after != get.last else None, get.limit)
        if found:
            topic.hand_out(entry, found[-1][0])
        return Answer("records", found=tuple(found))

    # What happens to servers

    def operate(self) -> None:
        """A restart, a freeze, or the merge of what is frozen."""
        owners = [server for server in self.holders() if server not in self.frozen]
        chance = self.random.random()
        if owners and chance < 0.2:
            topic = self.topics[self.random.choice(owners)]
            assert topic is not None
            topic.restart(self.rules)
        elif self.frozen and chance < 0.6:
            self._join(*self.random.choice(sorted(self.frozen.items())))
        elif owners:
            giver = self.random.choice(owners)
            receiver = self.random.choice([server for server in range(SERVERS) if server != giver])
            if receiver not in self.frozen and giver not in self.frozen.values():
                self.frozen[giver] = receiver

    def _join(self, giver: int, receiver: int) -> None:
        given = self.topics[giver]
        if receiver not in self.frozen and given is not None:
            self._topic(receiver).absorb(given, self.rules)
            self.topics[giver] = None
            del self.frozen[giver]

    def _serve_late(self) -> None:
        self.serve(*self.late.pop(self.random.randrange(len(self.late))))

    def run(self, steps: int) -> World:
        """All of it: in the end what is late arrives, all is merged, and each name takes what is there."""
        rate = self.random.choice((0.01, 0.03, 0.1))
        for _ in range(steps):
            if self.random.random() < rate:
                self.operate()
            elif self.late and self.random.random() < 0.1:
                self._serve_late()
            else:
                self.random.choice([*self.publishers, *self.names]).step()
        while self.late:
            self._serve_late()
        while self.frozen or len(self.holders()) > 1:
            if not self.frozen:
                first, *_, last = self.holders()
                self.frozen[last] = first
            for giver in sorted(self.frozen):
                free = [server for server in range(SERVERS) if server not in self.frozen]
                self._join(giver, free[0])
        for server in self.holders():
            for publisher in self.publishers:
                publisher.finish(server)
            for name in self.names:
                name.finish(server)
        return self


class Publisher:
    """Puts, several under way at once, each naming the one before; it asks until each is answered."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.counter = world, name, 0
        self.outbox: list[Put] = []

    def step(self) -> None:
        """Put something, or ask again."""
        random = self.world.random
        if not self.outbox or (len(self.outbox) < 3 and random.random() < 0.3):
            put = Put((self.name, self.counter + random.randrange(1, 3)), self.counter)
            self.counter = put.content[1]
            self.world.puts[put.content] = Sent(self.world.now())
            self.outbox.append(put)
        else:
            self._settle(self.world.request(random.choice(self.outbox)))

    def _settle(self, answer: Answer | None) -> None:
        if answer is None:
            return
        for put in [put for put in self.outbox if put.content[1] <= answer.number]:
            self.world.puts[put.content].answered = self.world.now()
            self.outbox.remove(put)

    def finish(self, server: int) -> None:
        """Have the rest taken."""
        for put in list(self.outbox):
            self._settle(self.world.serve(server, put))
