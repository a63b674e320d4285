"""Two members through random faults: no rule broken, nothing stuck; and each rule left out is seen."""

from __future__ import annotations

import pytest

from tests.standby.mutants import RULES, run

FIRST = 4_000_000
TRIES_MAX = 2000
"""Seeds after which a rule that is left out must have been seen; nearly all are within a hundred."""

BY_SCENE = {"late"}
"""Rules whose lack chance shows once in thousands of runs: `test_follower` has a scene for each."""


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 16))])
def test_nothing_is_found(part: int) -> None:
    for seed in range(FIRST + 100 * part, FIRST + 100 * part + 100):
        assert not run(seed).objections, f"seed {seed}"


@pytest.mark.parametrize("rule", sorted(RULES.keys() - BY_SCENE))
def test_an_omitted_rule_is_seen(rule: str) -> None:
    assert any(run(seed, rule).objections for seed in range(FIRST, FIRST + TRIES_MAX)), RULES[rule]


def test_the_faults_happen() -> None:
    stats = [run(FIRST + seed).stats for seed in range(200)]
    for name in ("terms", "taken back", "standby full", "copies", "handed over", "joined", "dropped"):
        assert sum(one[name] for one in stats) > 10, name
