"""Rules that need runs of their own: nothing is found in these as the code is, and a breakage is caught."""

from __future__ import annotations

import pytest

from tests.simulation.breakages.table import BREAKAGES, broken
from tests.simulation.focus import FOCUSED
from tests.simulation.simulation import simulate

SEEDS = range(3)
TRIES_MAX = 120


@pytest.mark.parametrize("title", FOCUSED)
def test_nothing_is_found_in_runs_made_for_a_rule(title: str) -> None:
    assert title in BREAKAGES
    for seed in SEEDS:
        assert simulate(seed, FOCUSED[title](seed)).violations == []


@pytest.mark.slow
@pytest.mark.parametrize("title", FOCUSED)
def test_a_breakage_is_caught(title: str) -> None:
    for seed in range(TRIES_MAX):
        with broken(title):
            violations = simulate(seed, FOCUSED[title](seed)).violations
        if violations and not simulate(seed, FOCUSED[title](seed)).violations:
            return
    pytest.fail(f"none of {TRIES_MAX} seeds shows: {title}")
