"""Changes of settings in the simulation: runs have them, and nothing is found as the code is."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random

from pubsub.client.core.subscription import DROPPED
from pubsub.errors import DataLoss
from tests.simulation.callers import calling
from tests.simulation.configuring import configured
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.history import ACKED, History, Put, Reading
from tests.simulation.purged import lost_range
from tests.simulation.sample import run_once
from tests.simulation.settings_runs import settings_split

SEEDS = (*range(6), 11, 14, 47)
"""In the last one a holder drops bodies by the limit of the history before it knows the settings."""


def drawn(seed: int) -> Fate:
    return calling(complete(draw(Random(seed)), seed), seed)


def test_some_runs_change_settings_and_no_server_of_an_earlier_release_is_in_them() -> None:
    fates = [configured(drawn(seed), seed) for seed in range(400)]
    chosen = [fate for fate in fates if fate.configurers]
    assert 40 < len(chosen) < 140
    assert not any(fate.older or fate.older_members for fate in chosen)
    assert {fate.drops for fate in chosen} == {True, False}
    assert not any(fate.drops and fate.ranges for fate in chosen)


def test_the_choice_of_settings_changes_nothing_else_of_a_run() -> None:
    for seed in range(100):
        before, after = drawn(seed), configured(drawn(seed), seed)
        assert asdict(replace(after, configurers=0, drops=False, latest=False)) == asdict(before)


def test_changes_records_that_go_and_merges_come_together_and_nothing_is_found() -> None:
    counters = dict.fromkeys(("settings_changed", "batches_dropped", "topics_merged"), 0)
    for seed in SEEDS:
        result = run_once(settings_split, seed)
        assert result.violations == [], f"seed {seed} of tests/simulation/test_configuring.py"
        for name in counters:
            counters[name] += result.counters.get(name, 0)
    assert all(counters.values()), counters


def test_only_messages_in_the_ranges_that_were_told_may_be_missing() -> None:
    """A report of a loss by `drop` excuses what it names, and no other message of the topic."""
    for last, missing in ((2, ["m3"]), (3, [])):
        history = History(0.1)
        history.dropping.add("t")
        history.bare = {("log", at): f"m{at}" for at in (1, 2, 3)}
        for at in (1, 2, 3):
            put = history.put(Put(f"m{at}", ("c", 0, ""), at, "t", 1.0 + at))
            put.state = ACKED
        reading = history.readings["r", "t"] = Reading("r", "t", by_get=False, confirmed=0.0, wanted=True)
        reading.dropped.append(lost_range(DataLoss("t", "log.1", f"log.{last}", DROPPED)))
        found = history.judge()
        assert [text.split()[5] for text in found] == [f"{body}," for body in missing], found


def test_a_report_of_a_loss_that_is_none_by_drop_is_judged_as_in_other_topics() -> None:
    history = History(0.1)
    history.dropping.add("t")
    assert not history.tell("r", "t", "log.1", 0)
