"""Faults that wait for their moment: they occur, and each finds the mistake that it was made for.

The mistake is a repair taken out of the shipped code for the test. A reader found the fault before the simulation had
that moment (docs/reference/simulation-runs.md, *Gaps of the simulated world*).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from random import Random
from typing import Any
from unittest import mock

import pytest

import pubsub.client.reopening
import pubsub.server.process
from pubsub.client.flows.calls import Calls
from pubsub.server.group_commit import GroupCommit
from tests.simulation.fate import MOMENTS, Fate, draw, moments, pair
from tests.simulation.limits import SCARCE
from tests.simulation.simulation import simulate

SEEDS = range(1, 9)
ITERATING = (0, 6, 16)
"""Seeds of `CLOSED` in which the disk of a client fails while it is closed."""

TURNED = Fate(
    servers=2, clients=2, topics=2, seconds=6.0, heartbeat=0.2, pairs=1, faults={"turn receiver": 1.0}
)  # fmt: skip
FULL = Fate(
    servers=1, clients=2, topics=2, seconds=5.0, think=0.02, heartbeat=0.2, faults={"full start": 1.0, "kill": 0.5}
)  # fmt: skip
CLOSED = Fate(
    servers=1, proxies=1, topics=1, seconds=4.0, think=0.05, heartbeat=0.2, faults={"close midway": 4.0}
)  # fmt: skip
REOPENED = replace(CLOSED, iterates=True, faults={"reopen": 4.0})


def found(fate: Fate, seeds: Iterable[int]) -> list[str]:
    """The violations of the first of these runs that has some."""
    for seed in seeds:
        violations = simulate(seed, replace(fate, faults=dict(fate.faults))).violations
        if violations:
            return violations
    return []


def starts_without_its_reserve() -> Any:
    begin = GroupCommit.__init__

    def started(self: GroupCommit, settings: Any, store: Any, reserve: Any, *rest: Any) -> None:
        kept = mock.Mock(size=reserve.size, make=reserve.make)
        begin(self, settings, store, kept, *rest)
        self.reserve = reserve

    return mock.patch.object(GroupCommit, "__init__", started)


def standby_says_nothing() -> Any:
    def dropped(links: Any, listener: Any, *_: str) -> None:
        while links.receive_known(listener) is not None:
            pass

    return mock.patch.object(pubsub.server.process, "reject", dropped)


def close_ends_where_the_disk_fails() -> Any:
    def close(self: Calls, seconds: float) -> None:
        self.close_here()
        self._end(seconds)

    return mock.patch.object(Calls, "close", close)


def reopens_with_what_was_taken() -> Any:
    return mock.patch.object(pubsub.client.reopening, "settle", return_value=None)


def test_half_of_all_runs_have_moments_and_each_moment_occurs() -> None:
    fates = [moments(pair(draw(Random(seed)), seed), seed) for seed in range(400)]
    assert {fault for fate in fates for fault in fate.faults} >= set(MOMENTS)
    assert any(fate.scarce for fate in fates)
    assert {fate.attempts for fate in fates} == {1, 4}


def test_the_choice_of_moments_leaves_the_rest_of_a_run_unchanged() -> None:
    same = 0
    for seed in range(100):
        without = pair(draw(Random(seed)), seed)
        drawn = moments(pair(draw(Random(seed)), seed), seed)
        same += drawn == without
        drawn.faults = {fault: rate for fault, rate in drawn.faults.items() if fault not in MOMENTS}
        assert {**asdict(drawn), "scarce": False, "attempts": 4} == asdict(without)
    assert same > 40


def test_every_reduced_limit_is_below_that_of_the_code() -> None:
    assert all(0 < small < getattr(module, name) for module, name, small in SCARCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fate", "seeds", "without", "said"),
    [
        pytest.param(TURNED, SEEDS, standby_says_nothing, "is frozen at", id="a standby says where the primary is"),
        pytest.param(FULL, SEEDS, starts_without_its_reserve, "ended on a full disk", id="a start has the reserve"),
        pytest.param(REOPENED, SEEDS, reopens_with_what_was_taken, "which was put later", id="an iteration gives back"),
        pytest.param(CLOSED, ITERATING, close_ends_where_the_disk_fails, "is not released", id="a close releases all"),
    ],
)
def test_a_repair_that_is_taken_out_is_missed(fate: Fate, seeds: Iterable[int], without: Any, said: str) -> None:
    with without():
        assert any(said in line for line in found(fate, seeds))


@pytest.mark.slow
@pytest.mark.parametrize(("fate", "seeds"), [(TURNED, SEEDS), (FULL, SEEDS), (CLOSED, ITERATING), (REOPENED, SEEDS)])
def test_nothing_is_found_with_every_repair_in_place(fate: Fate, seeds: Any) -> None:
    assert found(fate, seeds[:2]) == []
