"""Runs of the model: many seeds, what was found, and how often what is rare happened."""

from __future__ import annotations

import collections
import time
from dataclasses import dataclass, field

from tests.standby.model.rules import RULES, Rules
from tests.standby.model.world import World


@dataclass
class Found:
    """What some runs came to.

    Attributes:
        runs: how many there were.
        kinds: of objections, and in how many runs.
        seeds: the first seed for each kind.
        counts: what happened how often; of "ticks to serve" the most.
    """

    runs: int = 0
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0

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
        slowest = max(found.counts["ticks to serve"], world.stats.pop("ticks to serve", 0))
        found.counts.update(world.stats)
        found.counts["ticks to serve"] = slowest
        for kind in sorted({str(objection[0]) for objection in world.objections}):
            found.kinds[kind] += 1
            found.seeds.setdefault(kind, seed)
        if found.kinds.total() >= enough:
            break
    found.seconds = time.monotonic() - begun
    return found
