"""The shipped register in the model's world: no violation with all rules, and some without any one of them."""

from __future__ import annotations

import pytest

from tests.standby.breakages import RULES, broken
from tests.standby.model.exploring import all_but, explore
from tests.standby.model.scenes import SCENES
from tests.standby.shipped import ShippedWorld

CAUGHT = {
    "eligible": 450,
    "majority": 2,
    "promise": 161,
    "durable": 10,
    "possible": 297,
    "unsure": 1647,
    "settle": 2,
    "new_term": 2,
    "readmit": 240,
}
"""A rule to the first seed that objects where it is left out."""


def test_the_shipped_code_with_all_rules_finds_no_violation() -> None:
    found = explore(0, 100, all_but(), ShippedWorld)
    assert not found.kinds, f"python -m tests.standby.model shipped seed N, for {found.seeds}"
    assert found.counts["terms"] > 100


@pytest.mark.parametrize("name", CAUGHT)
def test_a_rule_that_the_shipped_code_breaks_is_caught(name: str) -> None:
    with broken(name):
        assert explore(CAUGHT[name], 1, all_but(), ShippedWorld).kinds


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_catches_a_breakage_that_random_runs_miss(name: str) -> None:
    assert not any(SCENES[name](all_but(), seed, ShippedWorld) for seed in range(10))
    with broken(name):
        assert any(SCENES[name](all_but(), seed, ShippedWorld) for seed in range(10))


def test_every_breakage_is_tested() -> None:
    """`test_acceptor_recovery` tests "forget", which chance does not find, and `test_duels` tests "told"."""
    assert RULES.keys() == {*CAUGHT, *SCENES, "forget", "told"}
