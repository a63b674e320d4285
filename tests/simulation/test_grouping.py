"""Consumer groups in the simulation: nothing is found as the code is, and each breakage of their rules is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.fate import Fate
from tests.simulation.focus import FOCUSED, GROUPS
from tests.simulation.grouping.plan import (
    grouped,
    grouped_ends,
    grouped_late,
    grouped_pairs,
    grouped_restores,
    grouped_split,
    grouping,
)
from tests.simulation.sample import require_caught, run_once, sampled
from tests.simulation.simulation import simulate

FAMILIES = grouped, grouped_split, grouped_pairs, grouped_restores, grouped_late, grouped_ends
RUNS = [f"{made.__name__} {seed}" for made in FAMILIES for seed in range(4)]
EACH_TIME_RUNS = ("grouped 0", "grouped_split 0", "grouped_pairs 0")

SHOWN = {
    "groups: begun: a member that is back does not tell what it had begun": 4,
    "groups: claim: an effect commits for what is only offered": 2,
    "groups: close_keeps: a close does not give back": 0,
    "groups: cut: after a power cut only what its directory has counts as begun": 12,
    "groups: doubt: what a silent member has claimed goes to others": 192,
    "groups: durable: a claim is answered and not stored": 0,
    "groups: facts: what is done counts only from the member that holds it": 4,
    "groups: front: records are claimed from anywhere in a part": 12,
    "groups: fsync: what no fsync covers is told as done": 5,
    "groups: home: a group is made, and works, though another server may hold the topic": 1,
    "groups: kept: what is committed and not fsynced is not named": 8,
    "groups: last: an answer to an earlier message counts": 0,
    "groups: letters_hold_the_log: a dead letter stays in its log, too": 2,
    "groups: lost: an offer to a member that is not heard goes on": 14,
    "groups: nofilter: a member drops by the publisher's counter": 13,
    "groups: number: a late message counts like a new one": 3,
    "groups: numbers: members' numbers stay behind in a move": 5,
    "groups: once: what another member holds is claimed again": 18,
    "groups: part: two members may hold claims of one part": 12,
    "groups: repeat: what is done is told once": 47,
    "groups: rest: a record goes back without those behind it in its part": 118,
    "groups: restored_goes_on: a group of a restored copy goes on without an operator": 3,
    "groups: settle: a new process does not tell what its directory has as done": 5,
    "groups: stop: a member goes on with what it does not name": 9,
    "groups: store: an empty directory is the member that was before": 4,
    "groups: suspect: an attempt that ended its process does not count": 4,
    "groups: told: what was given up goes out without the mark": 116,
    "groups: travel: claims stay behind in a move": 12,
    "groups: wakes_all: a put ends the wait of each member": 0,
    "groups: watermark: a merge's filter is not looked at": 11,
}
"""A seed that shows a breakage, of the family that `focus` names."""

NOT_SHOWN = {"groups: blocked: an offer of a part goes on when another member claims in it"}
"""Such an offer is refused to its member, which then names it no more, so chance shows it too seldom: a scene of the
model of groups does (`tests/groups/test_model.py`, rule `blocked`)."""

EACH_TIME = (
    "groups: part: two members may hold claims of one part",
    "groups: stop: a member goes on with what it does not name",
)
"""The runs of these are among the shortest."""


def _made(name: str) -> Callable[[int], Fate]:
    return next(made for made in FAMILIES if made.__name__ == name)


@pytest.mark.parametrize("run", sampled(RUNS, EACH_TIME_RUNS))
def test_nothing_is_found_in_runs_of_groups(run: str) -> None:
    name, seed = run.split()
    result = run_once(_made(name), int(seed))
    assert result.violations == []
    assert result.counters["group effects"] > 0


def test_a_seed_repeats_its_run() -> None:
    """Tasks, and a process that waits with its thread blocked, come in the same order each time."""
    one, other = run_once(grouped, 0), simulate(0, grouped(0))
    assert (one.trace, one.events) == (other.trace, other.events)


def test_some_ordinary_runs_have_groups() -> None:
    assert 60 < sum(grouping(Fate(), seed).groups > 0 for seed in range(1000)) < 140


def test_each_breakage_of_groups_has_a_seed() -> None:
    assert SHOWN.keys() | NOT_SHOWN == set(GROUPS)


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(SHOWN, EACH_TIME))
def test_a_breakage_is_caught(title: str) -> None:
    require_caught(title, FOCUSED[title], (SHOWN[title],))
