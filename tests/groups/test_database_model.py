"""The rules of members with a database: all together are clean, and each rule left out is caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.groups.model.databases import DATABASES, DatabaseWorld
from tests.groups.model.rules import RULES
from tests.groups.model.world import STEPS
from tests.topics.model.exploring import explore
from tests.topics.model.rules import all_but

RUNS: Final = 60
"""Runs with all rules."""

FIGURES: Final = {"looks": 20, "lives ended": 8, "away": 20, "effects": 500}
"""How often each happens at least in these runs."""

ALL: Final = {**RULES, **DATABASES}

CAUGHT: Final[dict[str, tuple[int, str]]] = {
    "same": (27, "begun twice, untold"),
    "ended": (69, "begun twice, untold"),
    "before": (151, "begun twice, untold"),
    "unmarked": (0, "marked without a release"),
    "attempts": (13, "begun twice, untold"),
    "went_on": (77, "begun twice, untold"),
    "again": (202, "claimed and idle"),
}
"""For each rule a seed that objects where the rule is left out, and an objection."""

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/group-databases.md"
ROW: Final = re.compile(r"^\| (GD\d+) \| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)


def test_all_rules_together_are_clean() -> None:
    found = explore(DatabaseWorld, range(RUNS), all_but(ALL), steps=STEPS)
    assert not found.kinds, found.seeds
    assert {name: found.figures[name] for name, least in FIGURES.items() if found.figures[name] < least} == {}


def test_each_rule_is_tried() -> None:
    assert CAUGHT.keys() == DATABASES.keys()


@pytest.mark.parametrize("rule", CAUGHT)
def test_a_rule_left_out_is_caught(rule: str) -> None:
    seed, kind = CAUGHT[rule]
    assert kind in explore(DatabaseWorld, [seed], all_but(ALL, rule), steps=STEPS).kinds
    assert not explore(DatabaseWorld, [seed], all_but(ALL), steps=STEPS).kinds


def test_the_page_has_each_rule_of_the_model_with_its_objection() -> None:
    rows = {name: (rule, kind) for rule, name, kind in ROW.findall(PAGE.read_text())}
    assert rows == {name: (text.partition(":")[0], CAUGHT[name][1]) for name, text in DATABASES.items()}
