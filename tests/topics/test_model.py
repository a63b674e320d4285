"""The rules of topics that can be looked back into: all together are clean, and each rule left out is caught."""

from __future__ import annotations

from typing import Final

import pytest

from tests.topics.model.exploring import explore
from tests.topics.model.models import MODELS
from tests.topics.model.rules import all_but

RUNS: Final = {"looking_back": 400, "settings": 60, "defaults": 150, "delay": 150, "deletion": 150, "families": 300}
"""Runs with all rules; `python -m tests.topics.model MODEL --runs N` makes more."""

FIGURES: Final = {
    "looking_back": ("released", "dropped", "bodies dropped", "compacted", "reported as lost", "views begun anew"),
    "settings": ("conflicts", "refused", "released"),
    "defaults": ("held back", "moves", "released"),
    "delay": ("delayed", "delivered", "merges"),
    "deletion": ("deletions", "files lost", "merges"),
    "families": ("entered", "let go", "files lost", "merges"),
}
"""Each happens at least a hundred times in these runs."""

CAUGHT: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "looking_back": {
        "sole_owner": (3, "lost"),
        "held": (12, "a row is missing"),
        "lost": (12, "lost"),
        "counted": (935, "less is kept than promised"),
        "rows": (12, "lost"),
        "floor": (33, "a new reader gets a loss report"),
        "owed": (181, "reported as lost, never owed"),
        "renumber": (1, "lost"),
        "forget": (6, "lost"),
        "prefetch": (6, "lost"),
        "cuts": (14, "early"),
        "clock": (21, "lost"),
        "avoid": (83, "lost"),
        "gone": (6, "gone, but held"),
        "position": (98, "lost"),
        "beside": (118, "lost"),
        "last": (813, "lost"),
        "shown": (781, "lost"),
        "visible": (0, "the table changed"),
        "again": (78, "view differs"),
        "elder": (25, "the table changed"),
        "earlier": (30, "the table changed"),
        "tombstones": (10, "view differs"),
    },
    "settings": {
        "base": (0, "deleted although a setting keeps it"),
        "repeated": (0, "refused, though it was taken"),
        "named": (0, "conflict, though one was made from the other"),
        "travels": (0, "deleted although a setting keeps it"),
        "lineage": (0, "conflict, though one was made from the other"),
        "less": (5, "deleted although a setting keeps it"),
        "reported": (0, "replaced without a report"),
        "sole_owner": (1, "deleted although a setting keeps it"),
    },
    "defaults": {
        "compare": (28, "deleted although another server's default keeps it"),
        "silent": (68, "deleted although another server's default keeps it"),
        "answered": (0, "deleted although another server's default keeps it"),
        "asked": (14_031, "deleted although another server's default keeps it"),
        "newer": (531, "deleted although another server's default keeps it"),
        "travels": (28, "deleted although another server's default keeps it"),
        "chain": (1069, "deleted although another server's default keeps it"),
        "removed": (0, "held back for ever"),
    },
    "delay": {
        "sole_owner": (41, "doubled"),
        "always": (109, "lost"),
        "publisher": (1, "lost"),
        "last": (1, "put stuck"),
        "commit": (0, "doubled"),
        "travels": (0, "lost"),
        "both": (41, "lost"),
        "delivered": (350, "doubled"),
    },
    "deletion": {
        "all": (21, "lost"),
        "carried": (87, "lost"),
        "lower": (3, "a deleted message is back"),
        "named": (27, "a deleted message is back"),
        "previous": (0, "put stuck"),
        "memory": (17, "lost"),
    },
    "families": {
        "all": (20, "lost"),
        "every": (108_502, "lost"),
        "ask": (1802, "lost"),
        "enter": (10, "lost"),
        "since": (1, "lost"),
        "apart": (48, "lost"),
        "off": (17, "held for an ended pattern"),
        "list": (1, "lost"),
        "keep": (7, "lost"),
    },
}
"""For each rule the first seed that objects where the rule is left out, and an objection."""


@pytest.mark.parametrize("name", MODELS)
def test_all_rules_together_are_clean(name: str) -> None:
    model, rules = MODELS[name]
    found = explore(model, range(RUNS[name]), all_but(rules))
    assert not found.kinds, f"python -m tests.topics.model {name} --seed N --runs 1, for {found.seeds}"
    assert {figure: found.figures[figure] for figure in FIGURES[name] if found.figures[figure] < 100} == {}


@pytest.mark.parametrize("name", MODELS)
def test_each_rule_is_tried(name: str) -> None:
    assert CAUGHT[name].keys() == MODELS[name][1].keys()


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name, (_, rules) in MODELS.items() for rule in rules])
def test_a_rule_left_out_is_caught(name: str, rule: str) -> None:
    model, rules = MODELS[name]
    seed, kind = CAUGHT[name][rule]
    assert kind in explore(model, [seed], all_but(rules, rule)).kinds
    assert not explore(model, [seed], all_but(rules)).kinds


def test_a_lineage_that_is_cut_off_reports_too_many_conflicts_and_loses_nothing() -> None:
    model, rules = MODELS["settings"]
    found = explore(model, range(60), all_but(rules, "lineage"))
    assert set(found.kinds) == {"conflict, though one was made from the other", "refused, though it was taken"}
