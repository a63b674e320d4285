"""The rules of consumer groups: all together are clean, and each rule left out is caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.groups.model.rules import RULES
from tests.groups.model.scenes import SCENES
from tests.groups.model.world import STEPS, World
from tests.topics.model.exploring import explore
from tests.topics.model.rules import all_but

RUNS: Final = 200
"""Runs with all rules; `python -m tests.groups.model --runs N` makes more."""

FIGURES: Final = {
    "effects": 2_000,
    "given up": 20,
    "dead letters": 50,
    "crashes": 200,
    "failovers": 10,
    "merges": 50,
    "side by side": 300,
    "waited": 100,
    "superseded": 5,
    "effects after the end": 1,
    "closed": 40,
    "put off": 10,
    "let go of": 20,
}
"""How often each happens at least in these runs."""

CAUGHT: Final[dict[str, tuple[int, str]]] = {
    "claim": (5, "doubled"),
    "durable": (3, "in doubt after a clean close"),
    "deposed": (30, "doubled"),
    "once": (2, "doubled"),
    "number": (26, "begun twice, untold"),
    "last": (33, "doubled"),
    "process": (105, "begun twice, untold"),
    "stop": (14, "doubled"),
    "kept": (5, "doubled"),
    "store": (30, "begun twice, untold"),
    "settle": (0, "doubled"),
    "fsync": (4, "lost"),
    "repeat": (10, "doubled"),
    "doubt": (6, "begun twice, untold"),
    "told": (58, "untold"),
    "home": (44, "doubled"),
    "avoid": (11, "the group is not reached"),
    "travel": (10, "doubled"),
    "retries": (11, "lost"),
    "watermark": (22, "doubled"),
    "nofilter": (0, "lost"),
    "part": (3, "order"),
    "front": (32, "order"),
    "rest": (43, "order"),
    "suspect": (0, "lost"),
    "lost": (131, "lost"),
    "facts": (125, "given though done"),
    "held": (0, "lost"),
    "copied": (0, "lost"),
    "letters": (0, "the log is held"),
    "aged": (30, "the log is held"),
    "suspended": (290, "untold"),
    "marked": (290, "untold"),
    "open": (1_107, "untold"),
    "begun": (4, "lost"),
    "cut": (6, "begun twice, untold"),
    "own": (282, "doubled"),
    "hands": (3, "two handlers of a part"),
    "ended_wait": (13, "claimed for a process that ended"),
    "moment": (1_048, "shown as claimed"),
    "waited": (6, "claimed for a process that ended"),
    "close": (3, "in doubt after a clean close"),
    "close_answer": (3, "in doubt after a clean close"),
    "end_number": (1_389, "made by a SUBSCRIBE from before the end"),
    "highest": (744, "lost"),
    "superseded": (9, "lost"),
    "later": (0, "early"),
    "behind": (7, "order"),
    "failover": (13, "begun twice, untold"),
    "forget": (22, "lost"),
    "under_way": (2_385, "in doubt after a clean close"),
}
"""For each rule a seed that objects where the rule is left out, and an objection."""

CAUGHT_IN_A_SCENE: Final = {"numbers": "doubled", "blocked": "offered in vain"}
"""The objections of the scenes."""

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/group-promises.md"
ROW: Final = re.compile(r"^\| (GR\d+) \| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)


def test_all_rules_together_are_clean() -> None:
    found = explore(World, range(RUNS), all_but(RULES), steps=STEPS)
    assert not found.kinds, f"python -m tests.groups.model --trace --seed N, for {found.seeds}"
    assert {name: found.figures[name] for name, least in FIGURES.items() if found.figures[name] < least} == {}


def test_each_rule_is_tried() -> None:
    assert CAUGHT.keys() | SCENES.keys() == RULES.keys()


@pytest.mark.parametrize("rule", CAUGHT)
def test_a_rule_left_out_is_caught(rule: str) -> None:
    seed, kind = CAUGHT[rule]
    assert kind in explore(World, [seed], all_but(RULES, rule), steps=STEPS).kinds
    assert not explore(World, [seed], all_but(RULES), steps=STEPS).kinds


@pytest.mark.parametrize("rule", SCENES)
def test_a_scene_catches_a_rule_that_chance_breaks_too_seldom(rule: str) -> None:
    assert SCENES[rule](all_but(RULES)) == []
    assert SCENES[rule](all_but(RULES, rule)) == [CAUGHT_IN_A_SCENE[rule]]


def test_the_page_has_each_rule_of_the_model_with_its_objection() -> None:
    rows = {name: (rule, kind) for rule, name, kind in ROW.findall(PAGE.read_text())}
    kinds = {name: kind for name, (_, kind) in CAUGHT.items()} | CAUGHT_IN_A_SCENE
    assert rows == {name: (text.partition(":")[0], kinds[name]) for name, text in RULES.items()}
