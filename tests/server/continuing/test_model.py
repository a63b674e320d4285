"""The rules of continuing as an executable model: all of them together are clean, and each left out is caught."""

from __future__ import annotations

import pytest

from tests.server.continuing.exploring import explore
from tests.server.continuing.rules import RULES, all_but

CAUGHT: dict[str, int] = {
    "continue": 1,
    "whole_here": 6,
    "whole_made": 5,
    "fence": 53,
    "mark": 0,
    "again": 53,
    "loaded": 893,
    "came": 21,
    "joined": 1936,
    "stored": 110,
    "after_off": 214,
    "retake": 120,
}
"""A rule to the first seed that objects where it is left out."""


def test_the_model_with_all_rules_finds_no_violation() -> None:
    found = explore(0, 600, all_but())
    assert not found.kinds, f"python -m tests.server.continuing --seed N --runs 1, for {found.seeds}"
    assert min(found.figures[what] for what in ("directories lost", "continued", "marked")) > 500


def test_each_rule_has_its_breakage() -> None:
    assert CAUGHT.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_an_omitted_rule_is_caught(rule: str) -> None:
    seed = CAUGHT[rule]
    assert explore(seed, 1, all_but(rule)).kinds
    assert not explore(seed, 1, all_but()).kinds
