"""One run: publishers, three members and two servers, with faults; then the checks."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from random import Random
from typing import Final

from tests.groups.model.checks import Checks
from tests.groups.model.group import Group
from tests.groups.model.holder import Holder
from tests.groups.model.member import Member
from tests.groups.model.messages import Answer, Content, Position, Record, Request
from tests.groups.model.process import Effect
from tests.groups.model.publishers import Publisher
from tests.groups.model.rules import Rules
from tests.groups.model.topic import PARTS, Topic

STEPS: Final = (60, 120, 240)


class World(Checks):
    """One run.

    Args:
        seed: the only input.
        rules: by name, False for one that is left out.
        trace: print the events.
    """

    holder_class: type[Holder] = Holder
    member_class: type[Member] = Member

    def __init__(self, seed: int, rules: Rules, trace: bool = False) -> None:
        super().__init__()
        self.random, self.rules, self.trace = Random(seed), rules, trace
        self.numbers, self.violations, self.figures = 0, list[tuple[str, ...]](), Counter[str]()
        self._draw_kind()
        self.effects = list[Effect]()
        self.acknowledged, self.lost, self.poison = set[Content](), set[Content](), set[Content]()
        self.released, self.dead = set[tuple[int, Content]](), set[tuple[int, Content]]()
        self.skipped, self.begun = set[tuple[int, Content]](), set[tuple[int, Content]]()
        self.excluded, self.ends, self.eras = dict[int, set[Content]](), list[int](), dict[int, int]()
        self.servers = [self.holder_class(rules, self.random, self.tell) for _ in range(2)]
        self.begin_topic(self.servers[0])
        self.publishers = [Publisher(self, f"p{i}") for i in range(2)]
        self.members: list[Member] = [self.member_class(self, f"m{i}") for i in range(3)]

    def _draw_kind(self) -> None:
        """Draw the faults and the ways of use that this run has."""
        chance = self.random.random
        self.keyed, self.operated, self.disks = chance() < 0.5, chance() < 0.25, chance() < 0.3
        self.poisoned, self.before, self.failing = chance() < 0.4, chance() < 0.35, chance() < 0.3
        self.restoring, self.ending, self.retaining = chance() < 0.2, chance() < 0.2, chance() < 0.5
        self.closing, self.polling, self.delays = chance() < 0.4, chance() < 0.6, chance() < 0.4
        self.concurrency = self.random.choice((1, 1, 2, 4))
        self.trouble = self.random.choice((0.0, 0.05, 0.15, 0.3))
        self.split = self.random.choice((0.0, 0.02, 0.1))

    def run(self, steps: int) -> World:
        """Take this number of steps, then end all faults and check."""
        actors: list[Publisher | Member] = [*self.publishers, *self.members, *self.members]
        chance, rate = self.random.random, self.random.choice((0.04, 0.12))
        for _ in range(steps):
            self.clock += 1
            if chance() < rate:
                self.operate()
            elif self.late and chance() < 0.15:
                self.deliver_late()
            else:
                self.random.choice(actors).step()
            self.answer_waiting()
            self.check_closed()
        self.heal()
        self.figures["effects"] += len(self.effects)
        self.figures["records"] += len(self.acknowledged)
        self.figures["given up"] += len(self.released)
        self.figures["dead letters"] += len(self.dead)
        return self

    # Numbers and events

    def draw_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def era(self, number: int) -> int:
        """Return how many ends were before a group was made; a message may have an effect in each era."""
        return self.eras.get(number, 0)

    def part_of(self, record: Record) -> int:
        return record.key % PARTS if self.keyed else 0

    def part_of_content(self, content: Content) -> int:
        return content[2] % PARTS if self.keyed else 0

    def tell(self, event: str, group: Group, topic: Topic, position: Position) -> None:
        """Take note of an event at a server."""
        if event == "made":
            self.eras[group.number] = len(self.ends)
            shown = {topic.record(one).content for n in range(len(group.parts)) for one in topic.waiting(n)}
            self.excluded[group.number] = {record.content for log in topic.logs.values() for record in log} - shown
            if any(group.number < end for end in self.ends):
                self.object_to("made by a SUBSCRIBE from before the end", group.number)
            return
        self.say(event, topic.record(position).content)
        if event.startswith("objection: "):
            self.object_to(event.removeprefix("objection: "), position)
            return
        one = (self.era(group.number), topic.record(position).content)
        {"released": self.released, "dead": self.dead, "skipped": self.skipped}[event].add(one)

    def object_to(self, kind: str, what: object) -> None:
        self.violations.append((kind, str(what)))
        self.say("objection", kind, what)

    def violated(self, kind: str) -> bool:
        return any(one[0] == kind for one in self.violations)

    def say(self, *what: object) -> None:
        if self.trace:
            print(self.clock, *what)

    # Members and servers

    def member(self, request: Request) -> Member:
        return next(member for member in self.members if member.client == request.sender[0])

    def hear_no_more(self, member: Member) -> None:
        for server in self.servers:
            server.silent(server.key(member.identity))

    def forget_closed(self) -> None:
        for member in self.members:
            member.closed = False

    def serve(self, server: Holder, request: Request) -> Answer | None:
        sole, ends = self.sole() is server, self.random.random() < 0.3 * self.trouble and not self.healthy
        kept = None
        if ends:  # The process ends before the commit: nothing has happened.
            server.forget_memory()
            if self.rules["durable"]:
                return None
            kept = deepcopy(server.topic)
        answer = server.handle(request, self.clock, sole=sole, keyed=self.keyed)
        if ends:
            server.topic = kept
            server.forget_memory()
        return answer
