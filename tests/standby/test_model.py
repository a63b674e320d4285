"""The rules of a standby as an executable model: all of them together are clean, and each left out is caught."""

from __future__ import annotations

import pytest

from tests.standby.model.exploring import all_but, explore, explore_in
from tests.standby.model.rules import RULES
from tests.standby.model.scenes import SCENES

CAUGHT: dict[str, int] = {
    "hold": 1,
    "own": 52,
    "fsync": 15,
    "chosen": 1,
    "progress": 22,
    "eligible": 338,
    "majority": 11,
    "promise": 185,
    "durable": 6,
    "possible": 60,
    "join_first": 840,
    "unsure": 2412,
    "settle": 158,
    "new_term": 166,
    "old_term": 15,
    "previous": 5,
    "late": 688,
    "unapplied": 5,
    "fence": 78,
    "announce": 17,
    "send_moves": 37,
    "done_moves": 0,
    "join_all": 10449,
    "nonce": 14906,
    "copy_whole": 1,
    "readmit": 246,
}
"""A rule to the first seed that objects where it is left out."""


def test_the_model_with_all_rules_finds_no_violation() -> None:
    found = explore(0, 300, all_but())
    assert not found.kinds, f"python -m tests.standby.model seed N, for {found.seeds}"
    assert min(found.counts[rare] for rare in ("terms", "copies", "reverted")) > 50


def test_several_processes_find_the_same_as_one() -> None:
    *_, found = explore_in(2, 5, 20, batch=7)
    one = explore(5, 20, all_but())
    assert (found.runs, found.kinds, found.counts) == (20, one.kinds, one.counts)
    assert found.table().splitlines()[:2] == ["runs                       20", "runs objected to           0"]


def test_the_table_shows_each_violation_with_its_first_seed() -> None:
    found, more = explore(CAUGHT["hold"], 3, all_but("hold")), explore(CAUGHT["hold"] + 3, 3, all_but("hold"))
    kind, seed = next(iter(found.seeds.items()))
    count = (found.kinds + more.kinds)[kind]
    found.add(more)
    assert found.runs == 6
    assert f"- {kind}".ljust(27) + f"{count}, first seed {seed}" in found.table().splitlines()


@pytest.mark.parametrize("name", [name for name in RULES if name not in SCENES])
def test_an_omitted_rule_is_caught(name: str) -> None:
    assert explore(CAUGHT[name], 1, all_but(name)).kinds, f"find another seed: model mutants, for {name}"


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_catches_a_breakage_that_random_runs_miss(name: str) -> None:
    assert not any(SCENES[name](all_but(), seed) for seed in range(10))
    assert any(SCENES[name](all_but(name), seed) for seed in range(10))
