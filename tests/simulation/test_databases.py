"""Clients with their state in a database in the simulation: nothing is found, and each rule that is left out is."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from random import Random

import pytest

from tests.simulation.breakages import databases
from tests.simulation.database.plan import based, basing, grouped_bases, restored, usurped
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.focus import FOCUSED
from tests.simulation.sample import require_caught, run_once, sampled

FAMILIES = based, usurped, restored, grouped_bases
RUNS = [f"{made.__name__} {seed}" for made in FAMILIES for seed in range(4)]
EACH_TIME_RUNS = ("based 2", "usurped 1", "restored 2", "grouped_bases 1")
FULL = (based, 2), (based, 4), (usurped, 1), (restored, 2), (grouped_bases, 1)
"""Runs that have all faults."""

SHOWN = {
    "databases: a plain read after a lost COMMIT": 1,
    "databases: check first, then write": 6,
    "databases: no life check": 50,
    "databases: no number check": 5,
    "databases: an older database is taken as it is": 0,
    "databases: no mark check": 1,
    "databases: a commit may be lost in a crash": 3,
    "databases: an answer shows a copy to a process whose life is over": 2,
}
"""A seed that shows a breakage, of the family that `focus` names."""

NOT_SHOWN = {
    "databases: the life is counted for the token",
    "databases: a look does not end the life",
}
"""Breakages that runs showed before handlers had connections of their own, and that no seed is named for since then."""

EACH_TIME = (
    "databases: a plain read after a lost COMMIT",
    "databases: no number check",
    "databases: no mark check",
)

TRIES_MAX = 3


def drawn(seed: int) -> Fate:
    return complete(draw(Random(seed)), seed)


def test_some_runs_have_databases_and_nothing_else_of_a_run_changes() -> None:
    chosen = 0
    for seed in range(300):
        before, after = drawn(seed), basing(drawn(seed), seed)
        chosen += after.databases > 0
        assert asdict(replace(after, databases=0, faults=before.faults)) == asdict(before)
        assert after.faults == before.faults or after.databases
    assert 8 < chosen < 40


@pytest.mark.parametrize("run", sampled(RUNS, EACH_TIME_RUNS))
def test_nothing_is_found(run: str) -> None:
    name, seed = run.split()
    made = next(made for made in FAMILIES if made.__name__ == name)
    assert run_once(made, int(seed)).violations == [], f"{run} of tests/simulation/test_databases.py"


def test_the_faults_of_databases_happen() -> None:
    counters: Counter[str] = Counter()
    for made, seed in FULL:
        counters.update(run_once(made, seed).counters)
    for name in (
        "connections lost", "commits with a lost answer: never", "commits with a lost answer: done",
        "commits with a lost answer: late", "fault: database crash", "fault: promote", "clients with two processes",
        "messages that a second process took", "clients that another process had open", "group_records_settled",
        "transactions that a handler ended",
    ):  # fmt: skip
        assert counters[name], f"{name} never happened: {counters}"


def test_each_breakage_has_a_family_and_a_seed() -> None:
    assert databases.breakage.breakages.keys() == SHOWN.keys() | NOT_SHOWN
    assert FOCUSED.keys() >= SHOWN.keys()


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(SHOWN, EACH_TIME))
def test_a_rule_that_is_left_out_is_found(title: str) -> None:
    require_caught(title, FOCUSED[title], range(SHOWN[title], SHOWN[title] + TRIES_MAX), compared=False)


@pytest.mark.nightly
@pytest.mark.parametrize("title", SHOWN)
def test_a_seed_that_shows_a_breakage_finds_nothing_without_it(title: str) -> None:
    assert run_once(FOCUSED[title], SHOWN[title]).violations == []
