"""Runs of the model, one seed after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from tests.server.continuing.world import World


@dataclass
class Found:
    """What was objected to, in how many runs and first in which; and how often what happened."""

    kinds: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    figures: Counter[str] = field(default_factory=Counter)


def explore(first: int, runs: int, rules: Mapping[str, bool]) -> Found:
    """Run so many seeds."""
    found = Found()
    for seed in range(first, first + runs):
        world = World(seed, rules).run(Random(seed).choice((60, 150, 400)))
        found.figures += world.figures
        for kind in {violation[0] for violation in world.violations}:
            found.kinds[kind] += 1
            found.seeds.setdefault(kind, seed)
    return found
