"""Handlers that put messages off in the simulation: nothing is found, and each rule that is left out is."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

import pytest

from tests.simulation.breakages import retries
from tests.simulation.callers import calling
from tests.simulation.configuring import configured
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.focus import retried
from tests.simulation.retrying import retrying
from tests.simulation.sample import require_caught, run_once, sampled

SEEDS = range(8)

SHOWN = dict.fromkeys(retries.breakage.breakages, 2) | {"retries: a message is put aside without the position": 12}
"""By breakage, the first seed of `retried` that is tried."""

EACH_TIME = (
    "retries: the position passes a message that is not stored",
    "retries: a redriven letter stays a letter",
)

TRIES_MAX = 6


def drawn(seed: int) -> Fate:
    return configured(calling(complete(draw(Random(seed)), seed), seed), seed)


def test_some_runs_put_messages_off_and_nothing_else_of_a_run_changes() -> None:
    chosen = 0
    for seed in range(300):
        before, after = drawn(seed), retrying(drawn(seed), seed)
        chosen += after.retries > 0
        assert asdict(replace(after, retries=0, handler_fails=before.handler_fails)) == asdict(before)
    assert 30 < chosen < 150


def test_messages_are_put_off_rejected_and_redriven_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("messages put off", "messages rejected", "letters redriven"), 0)
    for seed in SEEDS:
        result = run_once(retried, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_retries.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(count > 20 for count in counters.values()), counters


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(SHOWN, EACH_TIME))
def test_a_rule_that_is_left_out_is_found(title: str) -> None:
    require_caught(title, retried, range(SHOWN[title], SHOWN[title] + TRIES_MAX))
