"""Two members of one server with faults of network, disks and register: the shipped cores, all else in a few lines.

Messages are lost, late, doubled and overtake each other; links are cut in one direction or both. Members are killed,
and lose power and unsynced data; own commits and stream files find the disk full. The register is one acceptor that is
asked in two steps, each of which may be lost. Publishers put chains; a reader asks for the content of the log. Each
sent answer is checked at once on the disk of each member in sync. Then the network heals, and everything must settle,
on one history.
"""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random
from typing import Any

from pubsub.protocol.standby import EntryId
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import Leading
from tests.standby.model.network import Network
from tests.standby.pair_disk import State
from tests.standby.pair_member import OTHER, TAKE, Member

SETTLE = 1200
"""Ticks within which everything has settled after the last fault."""


class Register:
    """One acceptor: (term, primary, in sync); only the last preparing member may have its value accepted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name, self.up = "R", True
        self.value: tuple[int, str, frozenset[str]] = (1, "A", frozenset("AB"))
        self.ballot = 1

    def on_prepare(self, source: str, token: int, kind: str) -> None:
        primary = self.world.members[self.value[1]]
        if kind == "takeover" and primary.name != source and self.world.now - primary.seen < TAKE:
            return
        self.ballot += 1
        self.world.send("R", source, "promised", token, self.ballot, self.value)

    def on_accept(self, source: str, token: int, ballot: int, value: tuple[int, str, frozenset[str]]) -> None:
        if ballot == self.ballot:
            self.world.say("chosen", *value)
            self.value = value
            self.world.send("R", source, "accepted", token, value)

    def on_beat(self, source: str, term: int) -> None:
        if term < self.value[0]:
            self.world.send("R", source, "deposed", self.value[0])
        else:
            self.world.members[source].seen = self.world.now


class Client:
    """Puts a chain, or reads all; asks either member, or both."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.up = world, name, True
        self.asked: dict[int, tuple[int, Any]] = {}
        self.numbers = self.counter = self.previous = 0
        self.outbox: list[tuple[int, int]] = []
        self.acked: list[int] = []
        self.answered = 0

    def step(self) -> None:
        world, random = self.world, self.world.random
        if self.name == "r":
            self.ask(("get",))
        else:
            if len(self.outbox) < 3 and random.random() < world.busy and not world.over:
                self.counter += 1
                self.outbox.append((self.counter, self.previous))
                self.previous = self.counter
            for row in self.outbox:
                self.ask(("put", self.name, *row))
        world.at(world.now + random.choice((4, 9, 15)), self.step)

    def ask(self, request: Any) -> None:
        self.numbers += 1
        self.asked[self.numbers] = self.world.end, request
        for name in self.world.random.choice(("A", "B", "AB")):
            self.world.send(self.name, name, "asked", self.numbers, request)
        if len(self.asked) > 30:
            del self.asked[min(self.asked)]

    def on_answer(self, source: str, number: int, answer: Any) -> None:
        before, request = self.asked.get(number, (0, None))
        if request is None or answer[0] in {"gap", "full"}:
            return
        world = self.world
        self.answered = world.now
        if answer[-1] < before:
            world.object("went back", self.name, request, answer[0], answer[-1], before, source)
        world.end = max(world.end, answer[-1])
        if answer[0] == "log":
            world.compare(answer[1])
        for row in [row for row in self.outbox if answer[0] == "taken" and row[0] <= answer[1]]:
            self.outbox.remove(row)
            self.acked.append(row[0])


class World(Network):
    """One run, from its seed."""

    def __init__(
        self,
        seed: int,
        rules: dict[str, bool],
        leading: type[Leading],
        following: type[Following],
        trace: bool = False,
    ) -> None:
        self.random, self.rules, self.trace = Random(seed), rules, trace
        random = self.random
        self.now = self.made = self.end = 0
        self.queue: list[Any] = []
        self.cut: set[tuple[str, str]] = set()
        self.objections: list[Any] = []
        self.stats: Counter[str] = Counter()
        self.calm = self.over = False
        self.log: list[tuple[str, int]] = []
        self.loss, self.late = random.choice(((0, 0), (0.02, 0.02), (0.1, 0.08), (0.02, 0.15)))
        self.tight, self.slow = random.choice((0, 0, 0.15, 0.4)), random.choice((0, 0.1))
        self.busy = random.choice((0.5, 0.5, 0.1, 0.02))
        self.pace = random.choice(((5, 20, 50), (5, 20, 50), (3, 6, 12)))
        self.apart = random.random() < 0.15  # A calm run in which a member is alone with the clients now and then.
        if self.apart:
            self.loss, self.late, self.tight, self.slow, self.busy, self.pace = 0, 0, 0, 0, 0.05, (60, 100)
        self.register = Register(self)
        self.members = {name: Member(self, name) for name in "AB"}
        for member in self.members.values():
            member.leading_class, member.following_class = leading, following
        self.clients = [Client(self, name) for name in ("x", "y", "r")]
        self.nodes: dict[str, Any] = {"R": self.register, **self.members} | {one.name: one for one in self.clients}

    def run_until(self, when: float) -> None:
        while self.queue and self.queue[0][0] <= when and not self.objections:
            self.now, _, call, args = heapq.heappop(self.queue)
            call(*args)
        self.now = int(when)

    # The invariants

    def released(self, primary: Member, end: EntryId) -> None:
        """An answer is sent: its change is on the disk of each member that may become primary next."""
        for name in self.register.value[2]:
            if not self.members[name].has_on_disk(end):
                self.object("released and not on the disk", primary.name, name, end)

    def compare(self, log: tuple[tuple[str, int], ...]) -> None:
        """A delivered message stays the same."""
        common = min(len(log), len(self.log))
        if list(log[:common]) != self.log[:common]:
            self.object("two histories", log, self.log)
        if len(log) > len(self.log):
            self.log = list(log)

    # Faults

    def disturb(self) -> None:
        random, chance = self.random, self.random.random()
        if self.apart or chance < 0.35:
            one, two = random.choice((("A", "B"), ("A", "B"), ("A", "R"), ("B", "R")))
            pairs = random.choice((((one, two), (two, one)), ((one, two),), ((two, one),)))
            if self.apart or random.random() < 0.3:  # A member that only clients reach.
                one = random.choice("AB")
                pairs = tuple(pair for two in (OTHER[one], "R") for pair in ((one, two), (two, one)))
            self.cut.update(pairs)
            self.at(
                self.now + random.choice((20, 60, 200) if not self.apart else (100, 200)),
                self.cut.difference_update,
                pairs,
            )
        elif chance < 0.75:
            power = random.random() < 0.4
            for name in random.choice(("A", "B", "A", "B", "AB")):
                self.members[name].crash(power)
                self.at(self.now + random.choice((2, 10, 40, 120)), self.members[name].start)
        elif chance < 0.85:
            for member in self.members.values():
                member.switch()
        elif chance < 0.93:
            random.choice(list(self.members.values())).full = random.randrange(1, 4)
        else:
            member = random.choice(list(self.members.values()))
            if member.leading is not None:
                member.file.kept = max(0, len(member.file.entries) - 2)
                member.file.trim()
        self.at(self.now + random.choice(self.pace), self.disturb)

    def run(self) -> World:
        random = self.random
        for member in self.members.values():
            member.start()
        for client in self.clients:
            self.at(random.randrange(1, 9), client.step)
        self.at(random.randrange(1, 60), self.disturb)
        self.run_until(random.choice((200, 400, 800)))
        if not self.objections:
            self.heal()
        return self

    def heal(self) -> None:
        """No more faults; perhaps one member is gone for good, or the link between both is cut for good."""
        random = self.random
        self.calm = True
        self.cut.clear()
        self.queue = [one for one in self.queue if one[2] not in (self.deliver, self.disturb)]
        heapq.heapify(self.queue)
        gone = ""
        if random.random() < 0.4:
            able = self.register.value[2]
            gone = random.choice([name for name in "AB" if able - {name}])
            self.members[gone].crash(random.random() < 0.5)
            self.members[gone].life += 1000
        for member in self.members.values():
            member.start()
        apart = () if gone else random.choice(((),) * 4 + ((("A", "B"),), (("B", "A"),)))
        self.cut.update(apart)
        self.say("HEALED, gone:", gone, "cut for good:", apart)
        begun = self.now
        self.run_until(begun + 100)
        self.over = True
        both = not gone and not apart
        while not self.settled(both) and self.now < begun + SETTLE and not self.objections:
            self.run_until(self.now + 20)
        self.stats["ticks to settle"] = self.now - begun
        if not self.settled(both):
            self.object("not settled", self.register.value, {n: m.end for n, m in self.members.items()})
        if not self.objections:
            self.check(both)

    def settled(self, both: bool) -> bool:
        if any(client.outbox or self.now - client.answered > 60 for client in self.clients[:2] if client.outbox):
            return False
        if self.now - self.clients[2].answered > 30:
            return False
        if not both:
            return True
        same = self.members["A"].end == self.members["B"].end
        return self.register.value[2] == frozenset("AB") and same

    def check(self, both: bool) -> None:
        """The clients' history against the log that is served now."""
        found = [member for member in self.members.values() if member.up and member.leading is not None]
        if len(found) != 1 or found[0].state is None:
            self.object("primaries", [member.name for member in found])
            return
        log = State(found[0].store).log
        self.compare(tuple(log))
        for client in self.clients[:2]:
            mine = [counter for name, counter in log if name == client.name]
            if mine != list(range(1, len(mine) + 1)):
                self.object("order", client.name, mine)
            if set(client.acked) - set(mine):
                self.object("lost", client.name, sorted(set(client.acked) - set(mine)))
        if both:
            one, other = ([entry.id for entry in member.store] for member in self.members.values())
            if one != other:
                self.object("copies differ")
