"""Delayed puts in the simulation: runs have them, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

from tests.simulation.callers import calling
from tests.simulation.configuring import configured
from tests.simulation.delaying import delayed_and_repeated, delayed_due_in_split, delaying
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.sample import run_once


def drawn(seed: int) -> Fate:
    return configured(calling(complete(draw(Random(seed)), seed), seed), seed)


def test_some_runs_delay_puts_and_no_server_of_an_earlier_release_is_in_them() -> None:
    chosen = [fate for fate in (delaying(drawn(seed), seed) for seed in range(200)) if fate.delays]
    assert 25 < len(chosen) < 70
    assert not any(fate.older or fate.older_members for fate in chosen)


def test_the_choice_of_delays_changes_nothing_else_of_a_run() -> None:
    for seed in range(100):
        assert asdict(replace(delaying(drawn(seed), seed), delays=0.0)) == asdict(drawn(seed))


def test_messages_become_due_in_splits_and_merges_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("delayed puts", "records_due", "delayed_held_up", "topics_merged"), 0)
    for made in (delayed_due_in_split, delayed_and_repeated):
        for seed in range(6):
            result = run_once(made, seed)
            assert result.violations == [], f"{made.__name__}, seed {seed}, of tests/simulation/test_delaying.py"
            for name in counters:
                counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters
