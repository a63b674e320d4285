"""Runs of a model, one seed after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

Violation = tuple[str, ...]


class Run(Protocol):
    """A model after a run: its objections, and how often each kind of event happened."""

    violations: list[Violation]
    figures: Counter[str]

    def run(self, steps: int) -> object: ...


Model = Callable[[int, Mapping[str, bool]], Run]


@dataclass
class Found:
    """Objections by kind, the number of runs with each and its first seed; figures of all runs."""

    kinds: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    figures: Counter[str] = field(default_factory=Counter)
    runs: int = 0


def explore(
    model: Model, seeds: Sequence[int], rules: Mapping[str, bool], *, steps: Sequence[int] = (100, 250, 500)
) -> Found:
    """Run each seed; the number of steps is drawn from the seed too."""
    found = Found()
    for seed in seeds:
        one = model(seed, rules)
        one.run(Random(seed).choice(steps))
        found.figures += one.figures
        kinds = {violation[0] for violation in one.violations}
        found.runs += bool(kinds)
        for kind in sorted(kinds):
            found.kinds[kind] += 1
            found.seeds.setdefault(kind, seed)
    return found
