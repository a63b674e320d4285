"""The clients of the model of patterns: publishers, and subscribers with two patterns each that may overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pubsub.protocol.patterns import matches
from tests.topics.model.topic import SKEW, Position, Record

if TYPE_CHECKING:
    from tests.topics.model.families import World

TOPICS: Final = ("a.1", "a.2", "b.1", "b.2", "c")
PATTERNS: Final = ("a.*", "*.1", ">")

Send = Callable[..., Any]


class Publisher:
    """Puts to random topics, each with the counter of its last put to that topic."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.counter = world, name, 0
        self.previous: Counter[str] = Counter()
        self.outbox: list[tuple[str, int, int]] = []

    def step(self) -> None:
        random = self.world.random
        if len(self.outbox) < 2 and random.random() < 0.4:
            topic = random.choice(TOPICS)
            self.counter += 1
            self.world.puts[self.name, self.counter] = [self.world.now(), 0, 0]
            self.outbox.append((topic, self.counter, self.previous[topic]))
            self.previous[topic] = self.counter
        elif self.outbox:
            self._send(self.world.request)

    def _send(self, send: Send) -> None:
        topic, counter, previous = self.outbox[0]
        if send("put", topic, self.name, counter, previous):
            self.world.puts[self.name, counter][1] = self.world.now()
            self.world.puts[self.name, counter].append(TOPICS.index(topic))
            del self.outbox[0]

    def finish(self) -> None:
        for _ in range(2):
            if self.outbox:
                self._send(lambda *message: self.world.serve(0, *message))
        if self.outbox:
            self.world.violations.append(("put stuck", self.name))


@dataclass
class Wish:
    """One pattern at its client; `have` maps a proxy to the stamp that it answered."""

    number: int = 0
    on: bool = False
    asked: int = 0
    answered: int = 0
    have: dict[int, int] = field(default_factory=dict)

    @property
    def stamp(self) -> int:
        return min(self.have.values(), default=0)


class Subscriber:
    """A client: its patterns, and for each joined topic the number and the position."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self._number, self.back = world, name, 0, 0
        self.wishes = {pattern: Wish() for pattern in world.random.sample(PATTERNS, 2)}
        self.joined: dict[str, tuple[int, Position | None]] = {}
        self.began: dict[str, int] = {}
        self.leaving: dict[str, int] = {}
        self.topics: set[str] = set()
        self.taken: list[tuple[str, int]] = []
        self.passed: Counter[tuple[str, str]] = Counter()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def step(self) -> None:
        world, chance = self.world, self.world.random.random()
        if world.clock < self.back:
            return
        if chance > 0.97:
            self.back = world.clock + world.random.randrange(200)
        open_wishes = [pattern for pattern, wish in self.wishes.items() if wish.number and not wish.answered]
        if open_wishes:
            self._ask(world.random.choice(open_wishes), world.request)
        elif self.leaving:
            self._leave(world.request)
        elif chance < 0.04:
            self._turn(world.random.choice(list(self.wishes)))
        elif chance < 0.3:
            if world.rules["list"] or not self.topics:
                self.topics |= set(world.request("topics") or ())
        elif wanted := self._wanted():
            self._work(world.random.choice(wanted), world.request)

    def _matching(self, topic: str) -> list[Wish]:
        return [wish for pattern, wish in self.wishes.items() if wish.on and wish.answered and matches(pattern, topic)]

    def _wanted(self) -> list[str]:
        return [topic for topic in sorted(self.topics) if self._matching(topic)]

    def _turn(self, pattern: str) -> None:
        """Begin or end a pattern; topics that no pattern matches any more are left."""
        wish = self.wishes[pattern] = Wish(self._next(), not self.wishes[pattern].on, self.world.now())
        if wish.on:
            return
        for topic in [topic for topic in self.joined if not self._matching(topic)]:
            del self.joined[topic]
            self.leaving[topic] = self._next()

    def _ask(self, pattern: str, send: Send) -> None:
        wish, count = self.wishes[pattern], len(self.world.proxies)
        proxy = self.world.random.randrange(count)
        stamp = send("pattern", (self.name, pattern), wish.number, wish.on, wish.stamp, at=proxy)
        if stamp is not None:
            wish.have[proxy] = stamp
            rules = self.world.rules
            enough = count if rules["every"] else count // 2 + 1
            if len(wish.have) >= (enough if rules["all"] else 1):
                wish.answered = self.world.now()

    def _leave(self, send: Send) -> None:
        topic = next(iter(self.leaving))
        if send("leave", topic, self.name, self.leaving[topic]):
            del self.leaving[topic]

    def _work(self, topic: str, send: Send) -> int:
        number, position = self.joined.get(topic, (0, None))
        if position is None:
            matching = self._matching(topic)
            number = self._next() if self.world.rules["apart"] else max(wish.number for wish in matching)
            self.began[topic] = min(wish.asked for wish in matching)
            self.joined[topic] = (number, send("join", topic, self.name, number, min(wish.stamp for wish in matching)))
            return 1
        answer = send("get", topic, self.name, number, position)
        if answer == "behind":
            self.world.violations.append(("behind", self.name))
        for place, record in answer if isinstance(answer, list) else ():
            self.joined[topic] = (number, place)
            self._take(topic, record)
        return len(answer or ())

    def _take(self, topic: str, record: Record) -> None:
        if record.counter <= self.passed[record.publisher, topic]:
            return
        self.passed[record.publisher, topic] = record.counter
        if record.content in self.taken:
            self.world.violations.append(("doubled", self.name))
        self.taken.append(record.content)
        put = self.world.puts[record.content]
        if put[1] and max(put[1:3]) < self.began[topic] - 2 * SKEW:
            self.world.violations.append(("from before", self.name))

    def finish(self) -> None:
        def send(*message: Any, at: int = 0) -> Any:
            return self.world.serve(at, *message)

        for _ in range(200):
            for pattern, wish in self.wishes.items():
                if wish.number and not wish.answered:
                    self._ask(pattern, send)
        if any(wish.number and not wish.answered for wish in self.wishes.values()):
            self.world.violations.append(("stuck", self.name))
        for _ in range(len(self.leaving)):
            self._leave(send)
        for _ in range(400):
            if self.world.rules["list"]:
                self.topics |= set(send("topics"))
            if not sum(self._work(topic, send) for topic in self._wanted()):
                break

    def judge(self) -> None:
        world = self.world
        for topics in world.servers:
            for name, topic in topics.items():
                for key, one in topic.subscriptions.items():
                    who, _, pattern = key.lstrip("*").partition(":")
                    wishes = [self.wishes[pattern]] if pattern in self.wishes else self._matching(name)
                    if who == self.name and one.on and not any(wish.on for wish in wishes):
                        world.violations.append(("held for an ended pattern", self.name))
        for content, put in world.puts.items():
            since = [wish.answered for wish in self._matching(TOPICS[put[3]])] if len(put) > 3 else []
            if put[1] and since and put[0] > min(since) and content not in self.taken:
                world.violations.append(("lost", self.name, f"{content}"))
