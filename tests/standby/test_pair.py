"""Two members through random faults: no rule broken, nothing stuck; and each rule left out is seen."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.standby.mutants import RULES, run

FIRST = 4_000_000
TRIES_MAX = 2000
"""Seeds after which a rule that is left out must have been seen; nearly all are within a hundred."""

BY_SCENE = {"late"}
"""Rules whose lack chance shows once in thousands of runs: `test_follower` has a scene for each."""


@cache
def undisturbed(seed: int) -> tuple[list[str], Counter[str]]:
    """Objections to a run with all rules, and its counts, as two tests look at them."""
    world = run(seed)
    return world.objections, world.stats


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(2, 16))])
def test_nothing_is_found(part: int) -> None:
    for seed in range(FIRST + 100 * part, FIRST + 100 * part + 100):
        assert not undisturbed(seed)[0], f"seed {seed}"


@pytest.mark.parametrize("rule", sorted(RULES.keys() - BY_SCENE))
def test_an_omitted_rule_is_seen(rule: str) -> None:
    assert any(run(seed, rule).objections for seed in range(FIRST, FIRST + TRIES_MAX)), RULES[rule]


def test_the_faults_happen() -> None:
    stats = [undisturbed(FIRST + seed)[1] for seed in range(200)]
    for name in ("terms", "taken back", "standby full", "copies", "handed over", "joined", "dropped"):
        assert sum(one[name] for one in stats) > 10, name
