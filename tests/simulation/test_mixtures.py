"""Mixtures in the simulation: runs have them, each comes about, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import pytest

from tests.simulation.database.plan import basing
from tests.simulation.families import EXCUSES
from tests.simulation.grouping.plan import grouping
from tests.simulation.history import ACKED, History, Put
from tests.simulation.lettering import Letters
from tests.simulation.mixtures import MIXTURES, mixed, mixing
from tests.simulation.retrying import GONE
from tests.simulation.seeking import UNSOUND
from tests.simulation.simulation import DRAWN_APART, simulate
from tests.simulation.test_delaying import drawn

COUNTED = {
    "compaction and delays": ("compaction_rounds", "delayed puts"),
    "compaction and patterns": ("compaction_rounds",),
    "compaction and purges": ("compaction_rounds", "topics_purged"),
    "compaction, tables and times to live": ("looks of tables", "messages passed over"),
    "compaction and seeks": ("compaction_rounds", "seeks"),
    "seeks and purges": ("seeks", "topics_purged"),
    "seeks and drops": ("seeks", "settings_changed"),
    "seeks and expiry": ("seeks", "expired"),
    "seeks and times to live": ("seeks", "messages passed over"),
    "retries and times to live": ("messages put off", "messages passed over"),
    "retries, delays and times to live": ("messages put off", "delayed puts"),
    "retries and topics of dead letters": ("dead letters put",),
    "quotas of clients": ("puts below a client's quota",),
    "quotas of clients, delays and retries": ("puts below a client's quota", "delayed puts"),
}
"""By mixture, what its runs must have."""

FOUND = {"compaction and purges": (1,), "seeks and times to live": (33,)}
"""Seeds that found a fault: a purge removed a log during a pass; the judge took an old look for one after a seek."""


def test_some_runs_have_mixtures_and_no_earlier_release_is_in_them() -> None:
    changed = [(drawn(seed), mixing(drawn(seed), seed)) for seed in range(300)]
    chosen = [after for before, after in changed if asdict(before) != asdict(after)]
    assert 20 < len(chosen) < 60
    assert not any(fate.older or fate.older_members for fate in chosen)
    assert DRAWN_APART[-3:] == (mixing, grouping, basing), "it sees what the others chose; groups and databases do not"


def test_a_mixture_goes_without_the_faults_that_its_parts_cannot_allow_for() -> None:
    for seed in range(400):
        fate = mixing(drawn(seed), seed)
        assert not (fate.seekers and (UNSOUND & fate.faults.keys() or fate.tight))
        assert not (fate.letters and GONE & fate.faults.keys())
        assert not (fate.latest and fate.families and EXCUSES & fate.faults.keys())


EACH_TIME = ("compaction and purges", "seeks and times to live", "retries and topics of dead letters")


@pytest.mark.parametrize("name", [name if name in EACH_TIME else pytest.param(name, marks=pytest.mark.nightly)
                                  for name in MIXTURES])  # fmt: skip
def test_a_mixture_comes_about_and_nothing_is_found(name: str) -> None:
    counters = dict.fromkeys(COUNTED[name], 0)
    for seed in {*range(2 if name in EACH_TIME else 6), *FOUND.get(name, ())}:
        result = simulate(seed, mixed(name)(seed))
        assert result.violations == [], f"seed {seed} of {name}"
        for counter in counters:
            counters[counter] += result.counters.get(counter, 0)
    assert all(counters.values()), counters


def test_a_dead_letter_that_is_missing_or_too_much_is_seen() -> None:
    for done, begun, table, objections in ((0, 1, set(), 0), (1, 1, set(), 1), (0, 1, {"c1:1"}, 1)):
        letters, history = Letters(), History(0.1)
        history.put(Put("c1:1", ("c1", 0, "main"), 1, "t1", 0.0, ACKED))
        letters.done["c1", "c1:1"], letters.begun["c1", "c1:1"] = done, begun
        nobody = SimpleNamespace(name="c1", records=SimpleNamespace(letters=table))
        letters.judge([nobody], [], history)  # type: ignore[list-item]
        assert len(history.violations) == objections
