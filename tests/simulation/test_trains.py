"""Trains in the simulated world: that they are there, among older servers too, and breakages that are caught."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.simulation.breakages.table import BREAKAGES
from tests.simulation.breakages.trains import TRAIN
from tests.simulation.fate import Fate, draw, trains
from tests.simulation.sample import require_caught, run_once
from tests.simulation.simulation import Result

SEEDS = 24
TRIES_MAX = 40

CAUGHT = [title for title in BREAKAGES if title.startswith(TRAIN)]


def fate(seed: int) -> Fate:
    """A small run of bursts of puts, by servers of which one may know no trains."""
    random = Random(f"small {seed}")
    return Fate(
        servers=random.choice((1, 2)),
        proxies=1,
        clients=2,
        topics=1,
        seconds=2.0,
        think=0.02,
        loss=random.choice((0.0, 0.05, 0.1)),
        late=random.choice((0.0, 0.05)),
        reorder=random.choice((0.0, 0.3)),
        bursts=0.7,
        older=random.choice((0, 0, 1)),
        upgrades=random.random() < 0.5,
        tight=random.random() < 0.3,
        faults={"kill": 0.7, "pause": 0.5, "refuse": 0.5, "cut": 0.5, "move": 1.0},
    )


def small(seed: int) -> Result:
    return run_once(fate, seed)


def test_nothing_is_found_and_trains_end_early_and_are_refused() -> None:
    counters: Counter[str] = Counter()
    for seed in range(SEEDS):
        result = small(seed)
        assert not result.violations, f"seed {seed} of tests/simulation/test_trains.py"
        counters.update(result.counters)
    assert counters["trains"] > SEEDS
    assert counters["trains_ended_early"]
    assert counters["trains refused by an older server"]


def test_some_runs_have_bursts_and_older_servers_and_are_otherwise_unchanged() -> None:
    drawn = [(trains(draw(Random(seed)), seed), draw(Random(seed))) for seed in range(200)]
    assert 0 < sum(bool(new.bursts) for new, _ in drawn) < 120
    assert 0 < sum(bool(new.older) for new, _ in drawn) < 100
    assert all(replace(new, bursts=0.0, older=0, upgrades=False) == old for new, old in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("title", CAUGHT)
def test_a_breakage_is_caught(title: str) -> None:
    require_caught(title, fate, range(TRIES_MAX))


def test_at_least_three_breakages_of_trains_are_known() -> None:
    assert len(CAUGHT) >= 3
