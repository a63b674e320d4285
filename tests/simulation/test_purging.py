"""Purges in the simulation: runs have them, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

from tests.simulation.callers import calling
from tests.simulation.configuring import configured
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.purging import purged_split, purging
from tests.simulation.sample import run_once
from tests.simulation.simulation import Simulation


def drawn(seed: int) -> Fate:
    return configured(calling(complete(draw(Random(seed)), seed), seed), seed)


def test_some_runs_purge_topics_and_no_server_of_an_earlier_release_is_in_them() -> None:
    fates = [purging(drawn(seed), seed) for seed in range(400)]
    chosen = [fate for fate in fates if fate.purgers]
    assert 20 < len(chosen) < 100
    assert not any(fate.older or fate.older_members for fate in chosen)
    assert {fate.purges_unread for fate in chosen} == {True, False}
    assert not any(fate.purges_unread and (fate.ranges or fate.tight) for fate in chosen)


def test_a_seed_draws_all_that_some_runs_have_besides() -> None:
    fates = [Simulation(seed).fate for seed in range(60)]
    for name in ("callers", "configurers", "purgers"):
        assert any(getattr(fate, name) for fate in fates), name


def test_the_choice_of_purges_changes_nothing_else_of_a_run() -> None:
    for seed in range(100):
        before, after = drawn(seed), purging(drawn(seed), seed)
        assert asdict(replace(after, purgers=0, purges_unread=False)) == asdict(before)


def test_purges_losses_and_merges_come_together_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("topics_purged", "batches_dropped", "topics_merged"), 0)
    for seed in range(12):
        result = run_once(purged_split, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_purging.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters
