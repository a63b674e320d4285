"""Calls in the simulated world: seeds that find nothing, and breakages that are caught."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.breakages.calls import CALL
from tests.simulation.breakages.table import BREAKAGES
from tests.simulation.callers import CALLING, calling
from tests.simulation.fate import Fate, draw
from tests.simulation.sample import require_caught, run_once
from tests.simulation.simulation import Result

SEEDS = 24
TRIES_MAX = 60
FIRST = {f"{CALL}reply sent before its commit": 103, f"{CALL}correlation forgotten on restart": 16}
"""First seeds for situations that chance rarely meets."""

CAUGHT = [title for title in BREAKAGES if title.startswith(CALL)]


def fate(seed: int) -> Fate:
    """A small run of calls alone."""
    random = Random(f"small {seed}")
    return Fate(
        servers=random.choice((1, 1, 2)),
        proxies=random.choice((1, 2)),
        clients=0,
        callers=random.choice((1, 2, 3)),
        topics=1,
        seconds=3.0,
        loss=random.choice((0.0, 0.02)),
        duplicate=random.choice((0.0, 0.05)),
        handler_fails=random.choice((0.0, 0.4)),
        faults={"kill": 1.5, "kill in commit": 2.5, "pause": 0.5, "power": 0.5, "full": 0.3, "cut": 0.5},
    )


def small(seed: int) -> Result:
    return run_once(fate, seed)


def test_nothing_is_found() -> None:
    outcomes: set[str] = set()
    for seed in range(SEEDS):
        result = small(seed)
        assert not result.violations, f"seed {seed} of tests/simulation/test_calls.py"
        outcomes |= {name for name in result.counters if name.startswith("calls: ")}
    assert outcomes == {"calls: done", "calls: failed", "calls: expired"}


def test_some_runs_have_calls_and_the_other_runs_are_unchanged() -> None:
    drawn = [(draw(Random(seed)), seed) for seed in range(200)]
    with_calls = [calling(fate, seed) for fate, seed in drawn]
    share = sum(bool(fate.callers) for fate in with_calls) / len(drawn)
    assert CALLING / 4 < share < CALLING
    assert all(new == old for new, (old, _) in zip(with_calls, drawn, strict=True) if not new.callers)


@pytest.mark.slow
@pytest.mark.parametrize("title", CAUGHT)
def test_a_breakage_is_caught(title: str) -> None:
    first = FIRST.get(title, 0)
    require_caught(title, fate, range(first, first + TRIES_MAX))


def test_at_least_four_breakages_of_calls_are_known() -> None:
    assert len(CAUGHT) >= 4
