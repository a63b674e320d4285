"""A random model of defaults by pattern (T3): files that differ between servers, a topic that moves, late answers.

An operator changes the files one after another, and restarts each server. Servers report their default when they are
asked. The answers arrive late, in any order, or never. Checked: a server that held a record protects it, until that
server starts again or is removed. A record that such a server's default keeps does not go by another default. When all
servers agree, and have answered, retention acts.

T3 as first written compares live servers only. Then a server that gives its topics away and stops takes its default
with it. See `silent`, `answered`, `asked`, `travels` and `chain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

SERVERS: Final = 3
VALUES: Final = (0, 20, 60)

RULES: Final = {
    "compare": "T3: while known servers differ, nothing goes by a default",
    "silent": "T3: a server that is down counts with its last answer, until it is removed",
    "answered": "T3: nothing goes by a default before each known server has answered in this life",
    "asked": "T3: only the answer to a question of this life counts, since a late one may be of any age",
    "newer": "T3: an answer from an earlier life of a server does not replace one from a later life",
    "travels": "T3: a transfer carries the giver's default",
    "chain": "T3: a transfer carries the answers that the giver has from others too",
    "removed": "T3: a removed server does not count",
}


class Default(NamedTuple):
    """The default of a server since its last start; lives count its starts."""

    life: int
    keep: int


@dataclass
class Record:
    """A record, and by server the last life in which it was held there."""

    stamp: int
    held: dict[int, int]


@dataclass
class Server:
    """One server; `known` has the answers of the others, in memory only."""

    index: int
    file: int
    default: Default
    up: bool = True
    removed: bool = False
    known: dict[int, Default] = field(default_factory=dict)


class World:
    """One run."""

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock = Random(seed), rules, 0
        first = self.random.choice(VALUES)
        self.servers = [Server(index, first, Default(1, first)) for index in range(SERVERS)]
        self.target, self.holder = first, 0
        self.lateness = self.random.choice((0.1, 0.4, 0.8))
        self.stops = self.random.choice((0.01, 0.03, 0.08))
        self.records: list[Record] = []
        self.late: list[tuple[int, int, Default, int]] = []
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()

    def _up(self) -> list[Server]:
        return [server for server in self.servers if server.up]

    def run(self, steps: int) -> World:
        """In the end, all that are left agree and have answered. Then retention must act."""
        often = (self._put, self._beat, self._beat, self._deliver, self._move, self._retain)
        kinds = [*often, *often, self._change]
        for _ in range(steps):
            self.clock += 1
            if self.random.random() < self.stops:
                self._stop_or_start()
            else:
                self.random.choice(kinds)()
        self._agree()
        return self

    def _put(self) -> None:
        holder = self.servers[self.holder]
        if holder.up:
            self.records.append(Record(self.clock, {holder.index: holder.default.life}))

    def _beat(self) -> None:
        """One server reports its default to another: the report arrives, or is late, or is lost."""
        one, other = self.random.sample(self.servers, 2)
        if one.up:
            fate = self.random.random()
            if fate < self.lateness:
                self.late.append((one.index, other.index, one.default, other.default.life))
            elif fate < 0.9:
                self._note(other, one.index, one.default)

    def _deliver(self) -> None:
        if self.late:
            one, other, default, asked_in = self.late.pop(self.random.randrange(len(self.late)))
            if asked_in == self.servers[other].default.life or not self.rules["asked"]:
                self._note(self.servers[other], one, default)

    def _note(self, server: Server, index: int, default: Default) -> None:
        earlier = server.known.get(index)
        if server.up and (earlier is None or default.life >= earlier.life or not self.rules["newer"]):
            server.known[index] = default

    def _change(self) -> None:
        """The operator goes on with a change of all files, or begins another one."""
        behind = [server for server in self.servers if server.file != self.target]
        if not behind:
            if self.random.random() < 0.1:
                self.target = self.random.choice(VALUES)
            return
        server = self.random.choice(behind)
        server.file = self.target
        if server.up:
            self._start(server)

    def _start(self, server: Server) -> None:
        server.up, server.known = True, {}
        server.default = Default(server.default.life + 1, server.file)
        if server.index == self.holder:
            self._held_by(server)

    def _held_by(self, server: Server) -> None:
        for record in self.records:
            record.held[server.index] = server.default.life

    def _stop_or_start(self) -> None:
        server = self.random.choice(self.servers)
        if server.removed:
            return
        if server.up:
            server.up = False
        elif self.random.random() < 0.5:
            self._start(server)
        elif server.index != self.holder and not any(other.removed for other in self.servers):
            server.removed = True

    def _move(self) -> None:
        giver = self.servers[self.holder]
        others = [server for server in self._up() if server is not giver]
        if not giver.up or not others:
            return
        receiver = self.random.choice(others)
        carried = {giver.index: giver.default} if self.rules["travels"] else {}
        if self.rules["chain"]:
            carried |= giver.known
        for index, default in carried.items():
            if index != receiver.index:
                self._note(receiver, index, default)
        self.holder = receiver.index
        self._held_by(receiver)
        self.figures["moves"] += 1

    def _may_apply(self, holder: Server) -> bool:
        """Return True if the holder may let go of something by its default."""
        for other in self.servers:
            if other is holder or (other.removed and self.rules["removed"]):
                continue
            if not other.up and not self.rules["silent"]:
                continue
            answer = holder.known.get(other.index)
            if answer is None and self.rules["answered"]:
                return False
            if answer is not None and answer.keep != holder.default.keep and self.rules["compare"]:
                return False
        return True

    def _retain(self) -> None:
        holder = self.servers[self.holder]
        if not holder.up:
            return
        if not self._may_apply(holder):
            self.figures["held back"] += 1
            return
        for record in [record for record in self.records if self.clock - record.stamp > holder.default.keep]:
            self.records.remove(record)
            self.figures["released"] += 1
            for other in self.servers:
                protects = record.held.get(other.index) == other.default.life and not other.removed
                if protects and self.clock - record.stamp <= other.default.keep:
                    self.violations.append(("deleted although another server's default keeps it", f"{other.index}"))

    def _agree(self) -> None:
        holder = self.servers[self.holder]
        for server in self.servers:
            if not server.removed and (server is holder or server.file != self.target or not server.up):
                server.file = self.target
                self._start(server)
        for server in self._up():
            if server is not holder:
                self._note(holder, server.index, server.default)
        self.clock += max(VALUES) + 1
        self._retain()
        if self.records:
            self.violations.append(("held back for ever",))
