"""Servers with different defaults in the simulation: some runs have them, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

from tests.simulation.callers import calling
from tests.simulation.configuring import configured
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.focus import defaults_moved
from tests.simulation.retaining import defaulted
from tests.simulation.sample import run_once

SEEDS = (10, 11, 14)


def drawn(seed: int) -> Fate:
    return configured(calling(complete(draw(Random(seed)), seed), seed), seed)


def test_some_runs_have_defaults_and_no_server_of_an_earlier_release_is_in_them() -> None:
    fates = [defaulted(drawn(seed), seed) for seed in range(400)]
    chosen = [fate for fate in fates if "defaults" in fate.faults]
    assert 20 < len(chosen) < 100
    assert not any(fate.older or fate.older_members for fate in chosen)


def test_the_choice_of_defaults_changes_nothing_else_of_a_run() -> None:
    for seed in range(100):
        before, after = drawn(seed), defaulted(drawn(seed), seed)
        faults = {name: rate for name, rate in after.faults.items() if name != "defaults"}
        assert asdict(replace(after, faults=faults, expires=False)) == asdict(before)


def test_moves_other_defaults_and_changed_files_come_together_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("held_by_other_defaults", "fault: defaults", "fault: move"), 0)
    for seed in SEEDS:
        result = run_once(defaults_moved, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_retaining.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters
