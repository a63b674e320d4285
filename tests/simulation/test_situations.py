"""Faults that are rare in a whole run, one at a time: that they happen, and that what comes of them is judged."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from pubsub.errors import StoreDamaged
from pubsub.server import delivery
from pubsub.server.topic import Topic
from tests.simulation.fate import Fate
from tests.simulation.simulation import Result, simulate

FLIPPED = Fate(servers=1, proxies=1, topics=2, seconds=4.0, think=0.02, faults={"flip": 2.0, "pause": 2.0})
TIGHT = Fate(servers=1, topics=1, seconds=5.0, think=0.005, tight=True, faults={"detour": 1.0, "pause": 4.0})
QUARTERS = Fate(servers=4, proxies=4, clients=4, topics=6, seconds=7.0, faults={"quarters": 0.2, "detour": 1.0})
STAGED = Fate(servers=3, topics=1, seconds=5.0, sinks=2, faults={"move": 4.0})


def runs(fate: Fate, seeds: int) -> tuple[Counter[str], list[str]]:
    counters: Counter[str] = Counter()
    found: list[str] = []
    for seed in range(seeds):
        result = run(fate, seed)
        found += result.violations
        counters.update(result.counters)
    return counters, found


def run(fate: Fate, seed: int) -> Result:
    facts = {name: getattr(fate, name) for name in fate.__dataclass_fields__}
    return simulate(seed, Fate(**{**facts, "faults": dict(fate.faults)}))


def test_a_flipped_bit_is_told_as_lost() -> None:
    counters, found = runs(FLIPPED, 6)
    assert not found
    assert counters["damaged batches"]
    assert counters["answered lost"]


def test_a_flipped_bit_that_is_handed_out_is_objected_to() -> None:
    with mock.patch.object(delivery._Walk, "_is_sound", return_value=True):
        _, found = runs(FLIPPED, 6)
    assert any("which nobody put there" in line for line in found)


def test_damage_where_nothing_was_damaged_is_objected_to() -> None:
    def invented(self: Topic, *_: object) -> None:
        raise StoreDamaged("/s1", "so it says")

    with mock.patch.object(Topic, "subscribe", invented), pytest.raises(StoreDamaged):
        run(Fate(servers=1, seconds=2.0), 1)


def test_limits_in_bytes_are_reached() -> None:
    counters, found = runs(TIGHT, 4)
    assert not found
    assert counters["ended by its bytes"]
    assert counters["answered full"]


def test_topics_are_merged_that_were_merged_on_both_sides() -> None:
    counters, found = runs(QUARTERS, 8)
    assert not found
    assert counters["joined where both sides are acknowledged"]
    assert counters["joined where both sides have skips"]


def test_what_a_sink_has_staged_moves_along() -> None:
    counters, found = runs(STAGED, 3)
    assert not found
    assert counters["joined with stages"]
