"""Consumer groups in the simulation: nothing is found as the code is, and each breakage of their rules is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.breakages.table import broken
from tests.simulation.fate import Fate
from tests.simulation.focus import FOCUSED
from tests.simulation.grouping.plan import grouped, grouped_pairs, grouped_split, grouping
from tests.simulation.sample import sampled
from tests.simulation.simulation import simulate

FAMILIES = grouped, grouped_split, grouped_pairs
RUNS = [f"{made.__name__} {seed}" for made in FAMILIES for seed in range(4)]
EACH_TIME_RUNS = ("grouped 0", "grouped_split 0", "grouped_pairs 0")

SHOWN: dict[str, int] = {}
"""A seed that shows a breakage, of the family that `focus` names."""

EACH_TIME: tuple[str, ...] = ()
"""The runs of these are the shortest."""


def _made(name: str) -> Callable[[int], Fate]:
    return next(made for made in FAMILIES if made.__name__ == name)


@pytest.mark.parametrize("run", sampled(RUNS, EACH_TIME_RUNS))
def test_nothing_is_found_in_runs_of_groups(run: str) -> None:
    name, seed = run.split()
    result = simulate(int(seed), _made(name)(int(seed)))
    assert result.violations == []
    assert result.counters["group effects"] > 0


def test_a_seed_repeats_its_run() -> None:
    """Tasks, and a process that waits with its thread blocked, come in the same order each time."""
    one, other = (simulate(3, grouped(3)) for _ in range(2))
    assert (one.trace, one.events) == (other.trace, other.events)


def test_some_ordinary_runs_have_groups() -> None:
    assert 60 < sum(grouping(Fate(), seed).groups > 0 for seed in range(1000)) < 140


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(SHOWN, EACH_TIME))
def test_a_breakage_is_caught(title: str) -> None:
    seed = SHOWN[title]
    with broken(title):
        assert simulate(seed, FOCUSED[title](seed)).violations
    assert simulate(seed, FOCUSED[title](seed)).violations == []
