"""Patterns of topics in the simulation: runs have them, and topics begin at two servers under them."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

from tests.simulation.families import EXCUSES, families, families_split
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.focus import settings_split
from tests.simulation.sample import run_once
from tests.simulation.simulation import simulate

SEEDS = (0, 2, 5)


def drawn(seed: int) -> Fate:
    return complete(draw(Random(seed)), seed)


def test_some_runs_have_patterns_and_none_of_them_has_losses_of_its_own() -> None:
    chosen = [fate for fate in (families(drawn(seed), seed) for seed in range(600)) if fate.families]
    assert 10 < len(chosen) < 60
    assert not any(fate.faults.keys() & EXCUSES or fate.older for fate in chosen)


def test_the_choice_of_patterns_changes_nothing_else_of_a_run_but_faults_with_losses() -> None:
    for seed in range(60):
        before, after = drawn(seed), families(drawn(seed), seed)
        faults = before.faults if not after.families else {f: r for f, r in before.faults.items() if f not in EXCUSES}
        assert asdict(replace(after, families=0)) == asdict(replace(before, faults=faults))


def test_entries_are_made_and_ended_and_topics_are_merged_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("pattern_entries_made", "pattern_entries_ended", "topics_merged"), 0)
    for seed in SEEDS:
        result = run_once(families_split, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_families.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters


def test_a_topic_that_the_client_leaves_is_joined_again_however_late_the_answer_to_that_is() -> None:
    """No call waits for the answer to a request to leave; the look for matching topics asks again."""
    for seed in (310, 325):
        result = simulate(seed, replace(settings_split(seed), families=2, drops=False, tight=False))
        assert result.violations == [], f"seed {seed} of settings_split with patterns"
