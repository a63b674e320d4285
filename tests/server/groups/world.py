"""Two servers with a group, publishers, an operator, a network that fails, and the auditor of effects.

The servers are real cores on real stores; `members` has the members. The auditor compares the effects with those that
may happen: no effect twice unless it was released, and then marked; none missing; the order of each key.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pubsub.protocol import Outcome, Status, Subscribe
from pubsub.protocol.batch import decode_batch
from pubsub.protocol.groups import Work
from tests.server.groups.members import ATTEMPTS, KEYS, PARTS, Effect, Member, Place, Record, content_of
from tests.server.groups.workers import GROUP, TOPIC, act, facts
from tests.server.moving import Pair
from tests.server.stage import Stage, put


@dataclass
class Publisher:
    """A client that puts along a chain, to either holder."""

    world: World
    name: str
    counter: int = 0
    previous: int = 0
    outbox: list[tuple[tuple[str, int, int], int]] = field(default_factory=list)

    def step(self) -> None:
        draw = self.world.random
        if (not self.outbox or (len(self.outbox) < 3 and draw.random() < 0.4)) and self.counter < 12:
            self.counter += 1
            content = self.name, self.counter, draw.randrange(KEYS)
            if self.world.poisoned and draw.random() < 0.06:
                self.world.poison.add(content)
            self.outbox.append((content, self.previous))
            self.previous = self.counter
        if self.outbox:
            self.put(draw.choice(self.outbox))

    def put(self, row: tuple[tuple[str, int, int], int]) -> None:
        content, previous = row
        body, key = ":".join(map(str, content)).encode(), f"k{content[2]}".encode()
        stage = self.world.holder()
        message = put(TOPIC, content[1], (body,), keys=(key,), sender=self.name, previous=previous)
        callback = stage.say(message)
        stage.loop()
        answer = stage.answer(callback)
        self.world.remember(stage)
        if answer is None or answer.outcome not in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            return
        if self.world.healthy or self.world.random.random() > self.world.trouble:
            self.world.acknowledged |= {one for one, _ in self.outbox if one[1] <= answer.last}
            self.outbox = [one for one in self.outbox if one[0][1] > answer.last]


class World:
    """Two servers, three members, two publishers, one operator."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.random = pair, Random(seed)
        self.clock = self.stores = 0
        draw = self.random
        self.keyed, self.operated, self.disks = draw.random() < 0.5, draw.random() < 0.25, draw.random() < 0.3
        self.poisoned, self.trouble = draw.random() < 0.4, draw.choice((0.0, 0.05, 0.15, 0.3))
        self.split, self.before = draw.choice((0.0, 0.02, 0.1)), draw.random() < 0.35
        self.late: list[tuple[str, Any, Any]] = []
        self.effects: list[Effect] = []
        self.violations: list[Any] = []
        self.released: set[Any] = set()
        self.acknowledged: set[Any] = set()
        self.buried: set[Any] = set()
        self.begun: set[Any] = set()
        self.poison: set[Any] = set()
        self.lost_stores: set[tuple[str, str]] = set()
        self.healthy = False
        self.contents: dict[Place, tuple[str, int, int]] = {}
        self.seen: dict[str, int] = {}
        stage = pair["s1"]
        mode: dict[str, Any] = {"group": "keyed", "parts": PARTS} if self.keyed else {"group": "shared"}
        made = stage.ask(
            Subscribe("m0", TOPIC, self.tick(), 1, name=GROUP, start="earliest", attempts=ATTEMPTS, **mode)
        )
        assert made.outcome is Outcome.SUCCESS
        self.subscription = made.number
        self.members = [Member(self, f"m{index}") for index in range(3)]
        self.publishers = [Publisher(self, f"p{index}") for index in range(2)]
        for stage in pair.stages.values():
            stage.sole_owner = True

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def new_store(self) -> str:
        self.stores += 1
        return f"{self.stores:016x}"

    # The network

    def home(self) -> Stage:
        """The server with the group."""
        found = [stage for stage in self.pair.stages.values() if self.group_at(stage)]
        assert len(found) == 1, "the group stands at one holder"
        return found[0]

    @staticmethod
    def group_at(stage: Stage) -> Any:
        topic = stage.core.state.topics.get(TOPIC)
        group = topic.groups.get(GROUP) if topic else None
        return group if group is not None and group.row.on else None

    def holder(self) -> Stage:
        """A server for a put: mostly the group's, sometimes the other one, which then holds a part of the topic."""
        home = self.home()
        if self.healthy or self.random.random() >= self.split:
            return home
        return next(stage for stage in self.pair.stages.values() if stage is not home)

    def send(self, member: Member, work: Work) -> None:
        stage, fate = self.random.choice([self.home()] * 4 + list(self.pair.stages.values())), self.random.random()
        if self.healthy:
            stage, fate = self.home(), 1.0
        if fate < self.trouble:
            self.late.append(("request", member, work))
        if self.trouble <= fate < 1.3 * self.trouble:
            return
        if 1.3 * self.trouble <= fate < 1.6 * self.trouble:
            self.late.append(("request", member, work))
        if fate >= self.trouble:
            self.answer(member, self.work(stage, work))

    def work(self, stage: Stage, work: Work) -> Status | None:
        crashes = not self.healthy and self.random.random() < 0.3 * self.trouble
        callback = stage.say(work, origin=work.sender.encode())
        if crashes and self.random.random() < 0.5:
            stage.restart()
            return None
        for _ in range(4):
            stage.loop()
            answer = stage.answer(callback)
            if answer is not None:
                if crashes:  # The commit is through, and the answer is lost.
                    stage.restart()
                    return None
                return answer
        return None

    def answer(self, member: Member, answer: Status | None) -> None:
        if answer is None:
            return
        fate = 1.0 if self.healthy else self.random.random()
        if fate < 0.7 * self.trouble:
            self.late.append(("answer", member, answer))
        elif fate >= self.trouble:
            member.receive(answer)

    def deliver_late(self) -> None:
        kind, member, what = self.late.pop(self.random.randrange(len(self.late)))
        if kind == "request":
            self.answer(member, self.work(self.home(), what))
        else:
            member.receive(what)

    # The operator, and time

    def remember(self, stage: Stage) -> None:
        """Note the content of the records that were put last, by their places, for the auditor."""
        topic = stage.core.state.topics.get(TOPIC)
        if topic is None:
            return
        log = topic.open
        seen = self.seen.get(log.id, 1)
        for batch in stage.core.state.reader.batches(log.number, seen, log.end) if seen < log.end else ():
            assert batch.body is not None
            for index, body in enumerate(decode_batch(batch.body)):
                self.contents[log.id, batch.offset + index] = content_of(body)
            self.seen[log.id] = batch.offset + batch.count

    def operate(self) -> None:
        chance, home = self.random.random(), self.home()
        for stage in self.pair.stages.values():
            self.remember(stage)
        group = self.group_at(home)
        if chance < 0.4:
            home.sleep(self.random.choice((0.5, 1.5, 4.0)))
        elif chance < 0.5:
            home.restart()
        elif chance < 0.6 and self.operated and group.members:
            self.release(home, self.random.choice(list(group.members)))
        elif chance < 0.7:
            self.redrive(home)
        elif chance < 0.8:
            home.fail_commit = True
            self.random.choice(self.members).send()
            home.fail_commit = home.core.state.full = False
        elif self.split:
            self.merge()

    def release(self, home: Stage, key: tuple[str, str]) -> None:
        member = self.group_at(home).members[key]
        held = [((log, offset), part) for part, log, low, high in member.pieces() for offset in range(low, high)]
        answer = act(home, "release", self.subscription, member=key[0], store=key[1], number=member.number, force=1)
        assert answer.outcome is Outcome.SUCCESS
        for place, part in held:
            content = self.contents.get(place)
            if content is not None and (not self.keyed or Record(content, False, 0).part == part):
                self.released.add(content)

    def redrive(self, home: Stage) -> None:
        self.bury(home)
        act(home, "redrive", self.subscription)

    def bury(self, home: Stage) -> None:
        group = self.group_at(home)
        self.buried |= {self.contents[place] for place in group.copies if place in self.contents}

    def merge(self) -> None:
        """Let one holder give its part of the topic to the other one."""
        names = [name for name, stage in self.pair.stages.items() if TOPIC in stage.core.state.topics]
        if not names:
            return
        giver = self.random.choice(names)
        receiver = "s2" if giver == "s1" else "s1"
        now = max(stage.now for stage in self.pair.stages.values())
        for stage in self.pair.stages.values():
            stage.now = now
        self.pair.merge(giver, receiver)
        self.pair.turns(12)
        for stage in self.pair.stages.values():
            stage.sent.clear()

    # A run

    def run(self, steps: int) -> World:
        actors = [*self.publishers, *self.members, *self.members]
        rate = self.random.choice((0.03, 0.08))
        for _ in range(steps):
            chance = self.random.random()
            if chance < rate:
                self.operate()
            elif self.late and self.random.random() < 0.15:
                self.deliver_late()
            else:
                self.random.choice(actors).step()
            self.home().now += self.random.random() / 4
        self.heal()
        return self

    def heal(self) -> None:
        self.healthy = True
        while self.late:
            self.deliver_late()
        while sum(TOPIC in stage.core.state.topics for stage in self.pair.stages.values()) > 1:
            self.merge()
        for publisher in self.publishers:
            for _ in range(30):
                if publisher.outbox:
                    publisher.put(publisher.outbox[0])
            assert not publisher.outbox
        self.drain()
        self.poison.clear()
        self.redrive(self.home())
        self.drain()
        self.check()

    def drain(self) -> None:
        """Let all members work until nothing is left."""
        idle = 0
        for _ in range(200):
            before = len(self.effects), len(self.group_at(self.home()).copies)
            busy = False
            for member in self.members:
                if not member.up:
                    self.home().sleep(3.5)
                    member.open()
                member.fsync()
                self.send(member, member.message(3, claim=self.random.random() < 0.7))
                for _ in range(4):
                    if member.up and (member.held or member.offered):
                        member.handle()
                    if member.up and member.running:
                        self.send(member, member.message(0, claim=False))
                if member.up:
                    member.fsync()
                    self.send(member, member.message(0, claim=True))
                busy |= bool(member.held or not member.up)
            self.home().sleep(2.0)
            idle = 0 if busy or before != (len(self.effects), len(self.group_at(self.home()).copies)) else idle + 1
            told = facts(self.home())
            if idle > 2 and not told["delayed"] and (not self._waits() or (self.keyed and self._doubt())):
                return
        self.violations.append(("stuck", facts(self.home())))

    def _waits(self) -> bool:
        home = self.home()
        topic, group = home.core.state.topics[TOPIC], self.group_at(home)
        context = home.core.group_memory.context(topic, group, home.now)
        return any(next(context.scan().front(part), None) is not None for part in group.parts)

    def _doubt(self) -> bool:
        """Whether something is in doubt for a lost store, which holds up its parts."""
        return any(member.held for key, member in self.group_at(self.home()).members.items() if key in self.lost_stores)

    def check(self) -> None:
        group = self.group_at(self.home())
        self.bury(self.home())
        doubt, blocked = set(), set()
        for key, member in group.members.items():
            if key in self.lost_stores:
                for part, log, low, high in member.pieces():
                    blocked |= {part} if self.keyed else set()
                    doubt |= {self.contents[log, at] for at in range(low, high) if (log, at) in self.contents}
            elif member.held:
                self.violations.append(("held for nothing", key))
        times = collections.defaultdict(list)
        for effect in self.effects:
            if not effect.undone:
                times[effect.content].append(effect)
        for content in sorted(self.acknowledged):
            if not times[content] and content not in doubt and Record(content, False, 0).part not in blocked:
                self.violations.append(("lost", content))
        for content, done in times.items():
            if len(done) > 1 and content not in self.released:
                self.violations.append(("doubled", content))
            elif sum(not effect.doubtful for effect in done) > 1:
                self.violations.append(("untold", content))
        if self.keyed:
            self._check_order()

    def _check_order(self) -> None:
        highest: dict[tuple[str, int], int] = {}
        known = {(content[0], content[2]) for content in self.released | self.buried}
        for effect in self.effects:
            publisher, counter, key = effect.content
            if effect.undone or (publisher, key) in known:
                continue
            if counter < highest.get((publisher, key), 0):
                self.violations.append(("order", effect.content))
            highest[publisher, key] = max(counter, highest.get((publisher, key), 0))
