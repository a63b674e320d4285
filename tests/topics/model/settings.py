"""A random model of a topic's settings (T1, T2): which set is in force after splits, merges and moves.

Operators read the settings and set them with the version that they read. Their requests are late, lost and repeated at
other servers. Checked: an answered `set` is in force, or was replaced by an operator that saw it, or is reported
as a conflict. No record goes that an answered `set` keeps, unless an operator that saw that `set` has replaced it.

A version is the ID of its request, and a row carries the versions that it was made from. T2 as first written compares
the direct base only. Two sets in a row at one holder, and none at the other, then look like a conflict. It also keeps
the value that lets go of less, but an age and a number of records have no such order. So both stay until the next set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple

SERVERS: Final = 3

RULES: Final = {
    "base": "T1: a set with another base than the present version is refused",
    "repeated": "T1: a repeated set is answered as a success while it is among the versions that the row was made from",
    "named": "T1: a version is the ID of its request, so that a set that two servers took is one version",
    "travels": "T1: the row travels with the topic",
    "lineage": "T2: a row carries all versions that it was made from, not its base alone",
    "less": "T2: of two concurrent values of `keep` both stay, and a record goes when each lets go of it",
    "reported": "T2: a merge of different values is reported as a conflict until the next set",
    "sole_owner": "T4: only the sole owner lets go of anything",
}


Keep = tuple[str, int]
"""An age or a number of records."""


class Values(NamedTuple):
    """Two settings: `keep`, and one for which the newer value counts.

    Attributes:
        keep: a record goes when each of these lets go of it. After a `set` it is one.
    """

    keep: frozenset[Keep] = frozenset({("age", 0)})
    rate: int = 0


UNSET: Final = Values()


def releases(keep: Keep, stamp: int, stamps: Sequence[int], time: int) -> bool:
    """Return True if a value lets go of the record with this stamp."""
    kind, amount = keep
    return stamp < time - amount if kind == "age" else sum(one > stamp for one in stamps) >= amount


@dataclass(frozen=True)
class Row:
    """The settings of a topic at one holder; the first version is ""."""

    version: str = ""
    values: Values = UNSET
    stamp: int = 0
    lineage: frozenset[str] = frozenset()
    conflict: bool = False


class Set(NamedTuple):
    """A request of an operator; every transmission has the same ID."""

    id: str
    base: str
    values: Values


@dataclass
class Holder:
    """The part of the topic at one server: its settings, and the stamps of the records that are left."""

    row: Row
    records: list[int]


class Facts(NamedTuple):
    """The facts of a version, independent of its row.

    Attributes:
        made_from: the sets that led to it, and itself.
        replaced: sets among these that a later set has replaced.
        known: sets that were in force, or reported in a conflict, for all readers of the versions up to this one.
    """

    made_from: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()


def merged(mine: Row, its: Row, rules: Mapping[str, bool]) -> Row:
    """Return the settings of two holders that become one."""
    if mine.version == its.version or mine.version in its.lineage:
        return replace(its, conflict=mine.conflict or its.conflict) if mine.version == its.version else its
    if its.version in mine.lineage:
        return mine
    newer, older = (mine, its) if (mine.stamp, mine.version) > (its.stamp, its.version) else (its, mine)
    keep = mine.values.keep | its.values.keep if rules["less"] else newer.values.keep
    differ = mine.values != its.values or mine.conflict or its.conflict
    return Row(
        f"{min(mine.version, its.version)}&{max(mine.version, its.version)}",
        newer.values._replace(keep=keep),
        newer.stamp,
        newer.lineage | older.lineage | {newer.version, older.version},
        differ and rules["reported"],
    )


class World:
    """One run."""

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock = Random(seed), rules, 0
        self.holders: list[Holder | None] = [None] * SERVERS
        self.facts: dict[str, Facts] = {"": Facts()}
        self.asked: dict[str, Set] = {}
        self.answered: set[str] = set()
        self.late: list[tuple[int, Set]] = []
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()
        self.operators = [Operator(self, f"o{n}") for n in range(3)]

    def object_to(self, *violation: str) -> None:
        if violation not in self.violations:
            self.violations.append(violation)

    def holding(self) -> list[int]:
        return [server for server, holder in enumerate(self.holders) if holder]

    def server(self) -> int:
        """Return a server that a proxy routes to: mostly one that holds the topic."""
        holding = self.holding()
        return self.random.choice(holding) if holding and self.random.random() < 0.7 else self.random.randrange(SERVERS)

    def _holder(self, server: int) -> Holder:
        holder = self.holders[server]
        if holder is None:
            holder = self.holders[server] = Holder(Row(), [])
        return holder

    # Requests

    def send(self, asked: Set) -> str:
        """Send a set; return the outcome, or "" if the request or its answer is lost or late."""
        fate, server = self.random.random(), self.server()
        if fate < 0.25:
            self.late.append((server, asked))
        if fate < 0.3:
            return ""
        outcome = self.serve(server, asked)
        return "" if fate < 0.5 else outcome

    def serve(self, server: int, asked: Set) -> str:
        holder = self._holder(server)
        row = holder.row
        made_from = row.lineage | {row.version}
        if self.rules["repeated"] and self.rules["named"] and asked.id in made_from:
            return "success"
        if self.rules["base"] and asked.base != row.version:
            if asked.id in self.facts[row.version].made_from:
                self.object_to("refused, though it was taken", asked.id)
            return "refused"
        self.clock += 1
        version = asked.id if self.rules["named"] else f"{asked.id}@{self.clock}"
        lineage = made_from if self.rules["lineage"] else frozenset({row.version})
        holder.row = Row(version, asked.values, self.clock, lineage)
        base = self.facts[asked.base]
        before = self.facts[row.version] if asked.base == row.version else base
        made = frozenset({asked.id})
        # The operator saw `base`, so it replaces the sets that were known there and no other.
        self.facts[version] = Facts(before.made_from | made, before.replaced | base.made_from, before.known | made)
        self.figures["sets"] += 1
        return "success"

    # Servers

    def operate(self) -> None:
        """A record is stored, something is let go of, or two holders become one."""
        holding, random = self.holding(), self.random
        if not holding:
            return
        self.clock += 1
        chance, server = random.random(), random.choice(holding)
        holder = self._holder(server)
        if chance < 0.4:
            holder.records.append(self.clock)
        elif chance < 0.7:
            self._retain(server, holder)
        elif chance < 0.9:
            self._move(server, random.choice([other for other in range(SERVERS) if other != server]))

    def _retain(self, server: int, holder: Holder) -> None:
        if self.rules["sole_owner"] and self.holding() != [server]:
            return
        facts = self.facts[holder.row.version]
        in_force = [self.asked[one] for one in self.answered if one not in facts.replaced]
        stamps = tuple(holder.records)
        for stamp in stamps:
            if all(releases(keep, stamp, stamps, self.clock) for keep in holder.row.values.keep):
                holder.records.remove(stamp)
                self.figures["released"] += 1
                kept = [keep for one in in_force for keep in one.values.keep]
                if not all(releases(keep, stamp, stamps, self.clock) for keep in kept):
                    self.object_to("deleted although a setting keeps it", holder.row.version)

    def _move(self, giver: int, receiver: int) -> None:
        given, holder = self._holder(giver), self._holder(receiver)
        self.holders[giver] = None
        holder.records += given.records
        mine, its = holder.row, given.row
        holder.row = merged(mine, its, self.rules) if self.rules["travels"] else mine
        self._note_merge(mine, its, holder.row)

    def _note_merge(self, mine: Row, its: Row, row: Row) -> None:
        one, other = self.facts[mine.version], self.facts[its.version]
        related = one.made_from <= other.made_from or other.made_from <= one.made_from
        if row.conflict and not (mine.conflict or its.conflict) and related:
            self.object_to("conflict, though one was made from the other", row.version)
        if row.version not in self.facts:
            self.figures["conflicts"] += row.conflict
            seen = one.known | other.known if row.conflict or mine.values == its.values else one.known & other.known
            chosen = one.known if row.values == mine.values else other.known
            self.facts[row.version] = Facts(
                one.made_from | other.made_from, one.replaced | other.replaced, seen | chosen
            )

    def run(self, steps: int) -> World:
        """In the end, late requests arrive, all holders become one, and each operator learns the outcome."""
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.3:
                self.operate()
            elif self.late and chance < 0.4:
                self.serve(*self.late.pop(self.random.randrange(len(self.late))))
            elif chance < 0.7:
                self.random.choice(self.operators).step()
        for server, asked in self.late:
            self.serve(server, asked)
        while len(self.holding()) > 1:
            first, *_, last = self.holding()
            self._move(last, first)
        for server in self.holding():
            facts = self.facts[self._holder(server).row.version]
            for one in sorted(self.answered - facts.known):
                self.object_to("replaced without a report", one)
        return self


class Operator:
    """Reads the settings, changes them, and repeats each request until there is an answer."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.count = world, name, 0
        self.asked: Set | None = None

    def step(self) -> None:
        world, random = self.world, self.world.random
        if self.asked is None:
            if random.random() < 0.4:
                self._ask()
            return
        if outcome := world.send(self.asked):
            if outcome == "success":
                world.answered.add(self.asked.id)
            world.figures[outcome] += 1
            self.asked = None

    def _ask(self) -> None:
        world, random = self.world, self.world.random
        holder = world.holders[world.server()]
        self.count += 1
        keep = random.choice((("age", 0), ("age", 20), ("age", 60), ("records", 3), ("records", 10)))
        values = Values(frozenset({keep}), random.randrange(4))
        asked = Set(f"{self.name}.{self.count}", holder.row.version if holder else "", values)
        self.asked = world.asked[asked.id] = asked
