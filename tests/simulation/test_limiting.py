"""Quotas and times to live in the simulation: runs have them, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict, replace

from tests.simulation.limiting import limited, limiting
from tests.simulation.sample import run_once
from tests.simulation.test_delaying import drawn


def test_some_runs_have_limits_and_no_earlier_release_is_in_them() -> None:
    chosen = [fate for fate in (limiting(drawn(seed), seed) for seed in range(300)) if fate.ttls]
    assert 20 < len(chosen) < 70
    assert 0 < sum(fate.quotas for fate in chosen) < len(chosen)
    assert not any(fate.older or fate.older_members or fate.retries or fate.seekers for fate in chosen)


def test_the_choice_of_limits_changes_nothing_else_of_a_run() -> None:
    for seed in range(100):
        assert asdict(replace(limiting(drawn(seed), seed), ttls=0.0, quotas=False)) == asdict(drawn(seed))


def test_puts_are_throttled_and_messages_expire_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("puts below a quota", "messages passed over", "throttled"), 0)
    for seed in range(5):
        result = run_once(limited, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_limiting.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters
