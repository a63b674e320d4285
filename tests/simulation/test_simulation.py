"""The simulation by itself: seeds that find nothing, one history a seed, and breakages that are caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.simulation.breakages.table import BREAKAGES, ROOMS
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.focus import FOCUSED
from tests.simulation.sample import require_caught, sampled
from tests.simulation.simulation import Result, Simulation, shortened, simulate

ROOT = Path(__file__).resolve().parents[2]
FIRST = 9_000_000
SEEDS = 200
PARTS = 8
PARTS_EACH_TIME = 1

QUICK = {
    "duplicate detection off": 102,
    "put chain off": 101,
    "answer before commit": 128,
    "subscription number off": 200,
    "subscriptions left out of a transfer": 212,
    "seen set forgets": 202,
}
"""Breakages that at least one short run in three shows, each with such a seed.

The rarer ones are for `scripts/simulate --mutants`.
"""

EACH_TIME = ("duplicate detection off", "put chain off", "seen set forgets")
"""The runs of these are the shortest."""

TRIES_MAX = 40
"""Seeds from the named one on, since every change of the product makes another history of each. That none of so many
shows such a breakage has a chance of one in ten million."""

SPLIT = (2, 5, 8, 9, 10, 12, 17, 18)
"""Seeds each of which was several histories once."""

TRACES = """
import sys
from tests.simulation.test_simulation import short
for seed in map(int, sys.argv[1:]):
    result = short(seed)
    print(seed, result.trace, result.operations, result.events, sorted(result.counters.items()))
"""


def short(seed: int) -> Result:
    """A run that is not long."""
    return simulate(seed, shortened(seed))


@pytest.mark.parametrize(
    "part",
    [*range(PARTS_EACH_TIME), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(PARTS_EACH_TIME, PARTS))],
)
def test_nothing_is_found(part: int) -> None:
    size = SEEDS // PARTS
    first = FIRST + part * size
    results = []
    for seed in range(first, first + size):
        results.append(short(seed))
        assert not results[-1].violations, f"repeat with: scripts/simulate --seed {seed} --short --log"
    # They do something.
    assert min(result.operations for result in results) > 0
    assert sum(result.operations for result in results) > 100 * size
    assert any(name.startswith("fault: ") for result in results for name in result.counters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hash_seeds", "seeds"),
    [((0, 1), SPLIT[:4]), pytest.param((2, 3, 4, 5), SPLIT, marks=pytest.mark.nightly)],
    ids=["some", "all"],
)
def test_a_seed_is_one_history_in_every_process(hash_seeds: tuple[int, ...], seeds: tuple[int, ...]) -> None:
    """For any hash seed, and after any other run in the same process."""
    processes = []
    for hash_seed in hash_seeds:
        order = map(str, seeds if hash_seed % 2 else seeds[::-1])
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", TRACES, *order]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT))
    histories = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(hash_seeds)
    assert len(histories[0]) == len(seeds)
    assert [sorted(history) for history in histories] == [sorted(histories[0])] * len(hash_seeds)


def test_the_table_has_exactly_the_faults_that_a_run_may_have() -> None:
    drawn = {fault for seed in range(400) for fault in complete(draw(Random(seed)), seed).faults}
    focused = {fault for made in FOCUSED.values() for seed in range(20) for fault in made(seed).faults}
    assert drawn | focused == Simulation(1, Fate()).faults.by_name.keys()


def test_another_seed_is_another_history() -> None:
    assert short(1).trace != short(2).trace


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(QUICK, EACH_TIME))
def test_a_breakage_is_caught(title: str) -> None:
    first = QUICK[title]
    require_caught(title, shortened, range(first, first + TRIES_MAX), compared=False)


@pytest.mark.nightly
@pytest.mark.parametrize("title", QUICK)
def test_a_seed_that_shows_a_breakage_finds_nothing_without_it(title: str) -> None:
    assert short(QUICK[title]).violations == []


def test_at_least_twenty_breakages_are_known() -> None:
    assert len(BREAKAGES) >= 20
    assert len(BREAKAGES) == sum(len(room.breakage.breakages) for room in ROOMS)  # No title is there twice.
    assert set(QUICK) <= BREAKAGES.keys()
