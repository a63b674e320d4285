"""Runs of the model: many seeds, the violations, and the number of rare events."""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.standby.model.rules import RULES, Rules
from tests.standby.model.world import World

BATCH = 500
"""Seeds that a process runs before it reports its findings."""

MOST = "ticks to serve"
"""The count of which the most is kept, not the sum."""


@dataclass
class Found:
    """The results of some runs.

    Attributes:
        runs: their number.
        kinds: of violations, and the number of runs with each.
        seeds: the first seed for each kind.
        counts: number of each event; of "ticks to serve" the most.
    """

    runs: int = 0
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0

    def add(self, other: Found) -> None:
        """Add the results of other runs, of higher seeds."""
        most = max(self.counts[MOST], other.counts[MOST])
        self.counts.update(other.counts)
        self.counts[MOST] = most
        self.runs, self.seconds = self.runs + other.runs, self.seconds + other.seconds
        self.kinds.update(other.kinds)
        self.seeds = other.seeds | self.seeds

    def table(self) -> str:
        """A line for each thing that was counted."""
        rows = [("runs", str(self.runs)), ("runs objected to", str(self.kinds.total()))]
        rows += [(f"- {kind}", f"{count}, first seed {self.seeds[kind]}") for kind, count in sorted(self.kinds.items())]
        rows += [
            (f"{name}{', at most' if name == MOST else ''}", str(self.counts[name])) for name in sorted(self.counts)
        ]
        rows.append(("seconds of all processes", f"{self.seconds:.0f}"))
        return "\n".join(f"{name:<26} {value}" for name, value in rows)

    def __str__(self) -> str:
        said = f"{dict(self.kinds)} first seeds {self.seeds}" if self.kinds else "clean"
        return f"{self.runs} runs: {said} {dict(self.counts)} {self.seconds:.0f} s"


def all_but(name: str = "") -> Rules:
    """All rules but this one."""
    return {rule: rule != name for rule in RULES}


def explore(first: int, runs: int, rules: Rules, world_class: type[World] = World, enough: int = 10**9) -> Found:
    """Run seeds in turn; `enough`: runs with an objection after which it ends."""
    found, begun = Found(), time.monotonic()
    for seed in range(first, first + runs):
        world = world_class(seed, rules).run()
        found.runs += 1
        slowest = max(found.counts[MOST], world.stats.pop(MOST, 0))
        found.counts.update(world.stats)
        found.counts[MOST] = slowest
        for kind in sorted({str(objection[0]) for objection in world.objections}):
            found.kinds[kind] += 1
            found.seeds.setdefault(kind, seed)
        if found.kinds.total() >= enough:
            break
    found.seconds = time.monotonic() - begun
    return found


def _batch(world_class: type[World], first: int, runs: int) -> Found:
    return explore(first, runs, all_but(), world_class)


def explore_in(
    processes: int, first: int, runs: int, world_class: type[World] = World, batch: int = BATCH
) -> Iterator[Found]:
    """Run seeds with all rules in several processes; gives the results so far after each batch."""
    found, firsts = Found(), range(first, first + runs, batch)
    counts = [min(batch, first + runs - one) for one in firsts]
    with ProcessPoolExecutor(processes) as pool:
        for one in pool.map(functools.partial(_batch, world_class), firsts, counts):
            found.add(one)
            yield found
