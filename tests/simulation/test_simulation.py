"""The simulation by itself: seeds that find nothing, one history a seed, and breakages that are caught."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.fate import draw
from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.simulation import Result, simulate

FIRST = 9_000_000
SEEDS = 200
PARTS = 8
SECONDS_MAX = 2.5
"""Of the phase with faults, so that a few hundred runs take less than a minute."""

TRIES_MAX = 15

QUICK = (
    "duplicate detection off",
    "put chain off",
    "last-get ID ignored",
    "same number for two transmissions",
    "subscription number off",
    "position not committed with what was handled",
    "joined records end before they are cut",
    "seen set forgets",
)
"""Breakages that a run or a few show."""


def short(seed: int) -> Result:
    """A run that is not long."""
    fate = draw(Random(seed))
    fate.seconds = min(fate.seconds, SECONDS_MAX)
    return simulate(seed, fate)


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_found(part: int) -> None:
    size = SEEDS // PARTS
    first = FIRST + part * size
    found = {seed: violations for seed in range(first, first + size) if (violations := short(seed).violations)}
    assert not found


def test_runs_do_something() -> None:
    results = [short(n) for n in range(10)]
    assert min(result.operations for result in results) > 0
    assert sum(result.operations for result in results) > 1_000
    assert any(name.startswith("fault: ") for result in results for name in result.counters)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_one_history(seed: int) -> None:
    one, other = short(seed), short(seed)
    assert (one.trace, one.operations, one.events, one.counters) == (
        other.trace,
        other.operations,
        other.events,
        other.counters,
    )


def test_another_seed_is_another_history() -> None:
    assert short(1).trace != short(2).trace


@pytest.mark.parametrize("title", QUICK)
def test_a_breakage_is_caught(title: str) -> None:
    with broken(title):
        assert any(short(seed).violations for seed in range(TRIES_MAX))


def test_at_least_twenty_breakages_are_known() -> None:
    assert len(MUTANTS) >= 20
    assert set(QUICK) <= MUTANTS.keys()
