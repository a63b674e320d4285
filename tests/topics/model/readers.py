"""Subscribers: one that begins at the end, and one that seeks again and again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.topics.model.messages import Answer, Get, Start, Subscribe
from tests.topics.model.publishers import ROWS_MAX
from tests.topics.model.topic import SKEW, Content, Item, Position, Record

if TYPE_CHECKING:
    from tests.topics.model.world import Sent, World


class Reader:
    """A client's durable state: number, position and last counters taken; and its prefetched messages."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.number = world, name, 0
        self.wants, self.settled = False, True
        self.start = Start()
        self.invoked = self.answered = 0
        self.last: Position = ("", 0)
        self.fetched: list[Item] = []
        self.passed: Counter[str] = Counter()
        self.taken: set[Content] = set()
        self.lost: set[Content] = set()

    def step(self) -> None:
        chance = self.world.random.random()
        if not self.settled:
            self.ask()
        elif not self.wants:
            if chance < 0.3:
                self.change(True)
        elif chance < 0.03:
            self.change(False)
        else:
            self.receive_some(chance)

    def receive_some(self, chance: float) -> None:
        """Lose the prefetched messages, process some of them, or get more."""
        if chance < 0.06:
            self.fetched = []
        elif chance < 0.5 and self.fetched:
            self.store(self.world.random.randrange(1, len(self.fetched) + 1))
        else:
            self.receive(self.world.request(self.get(self.world.random.randrange(1, 5))))

    def change(self, on: bool) -> None:
        self.wants, self.settled, self.fetched = on, False, []
        if not on:  # The rest of a sink's batch that was taken in part is not owed any more.
            self.passed["sink"] |= ROWS_MAX - 1
        self.invoked = self.world.now()
        self.ask()

    def request(self) -> Subscribe:
        """Return the next transmission of the intent."""
        self.number += 1
        return Subscribe(self.name, self.number, self.wants, self.start)

    def ask(self) -> None:
        self.accept(self.world.request(self.request()))

    def accept(self, answer: Answer | None) -> None:
        if answer is not None:
            self.settled, self.last, self.answered = True, answer.position, self.world.now()

    def get(self, limit: int) -> Get:
        after = self.fetched[-1][0] if self.fetched else self.last
        return Get(self.name, self.number, self.last, after, limit)

    def receive(self, answer: Answer | None) -> int:
        if answer is None:
            return 0
        if answer.outcome == "behind":
            self.world.object_to("behind", self.name)
        self.fetched += answer.items
        return len(answer.items)

    def store(self, count: int) -> None:
        """Process so many; the last counters drop messages that were taken before."""
        for position, record in self.fetched[:count]:
            self.last = position
            if record is None:
                self._lose(position)
            elif record.counter > self.passed[record.publisher]:
                self.take(position, record)
                self.passed[record.publisher] = record.counter
        del self.fetched[:count]

    def take(self, position: Position, record: Record) -> None:
        if record.content in self.taken:
            self.world.object_to("doubled", self.name, f"{record.content}")
        self.taken.add(record.content)
        self.world.seen.append(position)
        if self.is_early(self.world.puts[record.content], position):
            self.world.object_to("early", self.name, f"{record.content}")

    def _lose(self, position: Position) -> None:
        content = self.world.record_at(position).content
        self.lost.add(content)
        self.world.figures["reported as lost"] += 1
        if self.world.is_bare(position) and self.was_never_owed(self.world.puts[content]):
            self.world.object_to("reported as lost, never owed", self.name, f"{content}")

    def is_early(self, sent: Sent, position: Position) -> bool:
        """Return True if a message is from before the start."""
        return bool(sent.answered) and max(sent.answered, sent.taken) < self.invoked - 2 * SKEW

    def was_never_owed(self, sent: Sent) -> bool:
        return self.is_early(sent, self.last)

    def finish(self, server: int) -> None:
        """Receive the whole backlog, and compare it with the promise."""
        world = self.world
        if not self.settled:
            return
        if not self.wants:
            topic = world.topics[server]
            if topic and (known := topic.subscriptions.get(self.name)) and known.on:
                world.object_to("subscribed again", self.name)
            return
        while self.receive(world.serve(server, self.get(5))) or self.fetched:
            self.store(len(self.fetched))
        for content, sent in world.puts.items():
            if sent.answered and content not in self.taken | self.lost and self.is_promised(content, sent):
                world.object_to("lost", self.name, f"{content}")

    def is_promised(self, content: Content, sent: Sent) -> bool:
        return sent.invoked > self.answered


class Seeker(Reader):
    """A subscriber that seeks: each seek begins an epoch, in which each message comes once."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.begins: frozenset[Content] = frozenset()

    def step(self) -> None:
        chance = self.world.random.random()
        if not self.settled:
            self.ask()
            if not self.world.rules["prefetch"] and self.fetched:
                self.store(1)
        elif chance < (0.05 if self.wants else 0.3):
            self.seek(self._drawn_start())
            self.ask()
        elif self.wants:
            self.receive_some(chance)

    def _drawn_start(self) -> Start:
        world, random = self.world, self.world.random
        kind = random.choice(("earliest", "stamp", "stamp", "position", "last"))
        if kind == "position" and world.seen:
            return Start(kind, position=random.choice(world.seen[-12:]))
        if kind == "stamp":
            return Start(kind, max(1, world.clock - random.randrange(60)))
        return Start("last", random.randrange(1, 8)) if kind == "last" else Start("earliest")

    def seek(self, start: Start) -> None:
        world = self.world
        world.figures[f"seeks, {start.kind}"] += 1
        if world.rules["prefetch"]:
            self.fetched = []
        if world.rules["forget"]:
            self.passed = Counter()
        self.start, self.wants, self.settled, self.invoked = start, True, False, world.now()
        self.taken, self.lost = set(), set()
        self.number += 1

    def request(self) -> Subscribe:
        self.number += self.world.rules["renumber"]
        return Subscribe(self.name, self.number, True, self.start)

    def accept(self, answer: Answer | None) -> None:
        if answer is None or answer.outcome == "unknown":
            return
        if answer.outcome == "gone":
            self.seek(Start("earliest"))
            return
        super().accept(answer)
        self.begins = answer.begins

    def is_early(self, sent: Sent, position: Position) -> bool:
        if self.start.kind == "stamp":
            return max(sent.stamps) < self.start.value
        if self.start.kind == "position":
            at = self.start.position
            if position[0] == at[0]:
                return position[1] < at[1]
            return max(sent.stamps) < self.world.record_at(at).stamp - SKEW
        return False

    def was_never_owed(self, sent: Sent) -> bool:
        policy = self.world.policy
        if policy.keep != "age" or policy.drop is not None:  # `drop` takes old records too.
            return False
        return max(sent.stamps) < self.invoked - policy.amount - 2 * SKEW

    def finish(self, server: int) -> None:
        for _ in range(3):
            if self.wants and not self.settled:
                self.accept(self.world.serve(server, self.request()))
        super().finish(server)

    def is_promised(self, content: Content, sent: Sent) -> bool:
        world = self.world
        if sent.invoked > self.answered:
            return True
        if content in self.begins:
            return True
        if self.start.kind == "stamp" and min(sent.stamps, default=self.start.value) < self.start.value:
            return False
        if self.start.kind == "position" and sent.invoked <= world.record_at(self.start.position).taken:
            return False
        return self.start.kind != "last" and world.is_kept(content, sent, self.answered)
