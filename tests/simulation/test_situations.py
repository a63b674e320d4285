"""Faults that are rare in a complete run, one at a time: they happen, and their results are judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest

from pubsub.client.core.changes import Change
from pubsub.client.core.prefetch import Loss
from pubsub.client.core.subscription import Subscription
from pubsub.errors import DataLoss, StoreDamaged
from pubsub.server.topic import delivery
from pubsub.server.topic.topic import Topic
from tests.simulation.fate import Fate
from tests.simulation.simulation import Result, simulate

pytestmark = pytest.mark.slow

FLIPPED = Fate(servers=1, proxies=1, topics=2, seconds=4.0, think=0.02, faults={"flip": 2.0, "pause": 2.0})
TIGHT = Fate(servers=1, topics=1, seconds=5.0, think=0.005, tight=True, faults={"detour": 1.0, "pause": 4.0})
QUARTERS = Fate(servers=4, proxies=4, clients=4, topics=6, seconds=7.0, faults={"quarters": 0.2, "detour": 1.0})
STAGED = Fate(servers=3, topics=1, seconds=5.0, sinks=2, faults={"move": 4.0})


SEEDS_MAX = 40
"""Runs after which a situation that has not come about counts as one that does not."""


def missing(fate: Fate, *situations: str) -> tuple[set[str], list[str]]:
    """Run seeds until each situation occurred; returns the missing ones, and the violations."""
    counters: Counter[str] = Counter()
    found: list[str] = []
    for seed in range(SEEDS_MAX):
        result = run(fate, seed)
        found += result.violations
        counters.update(result.counters)
        if all(counters[name] for name in situations) or found:
            break
    return {name for name in situations if not counters[name]}, found


def run(fate: Fate, seed: int) -> Result:
    facts = {name: getattr(fate, name) for name in fate.__dataclass_fields__}
    return simulate(seed, Fate(**{**facts, "faults": dict(fate.faults)}))


def test_a_flipped_bit_is_reported_as_lost() -> None:
    assert missing(FLIPPED, "batches_damaged", "answered lost") == (set(), [])


def test_a_delivered_flipped_bit_is_a_violation() -> None:
    with mock.patch.object(delivery, "is_sound", return_value=True):
        _, found = missing(FLIPPED, "never")
    assert found


def test_a_loss_that_the_stored_position_does_not_pass_is_a_violation() -> None:
    dead_letter = Subscription.dead_letter

    def first_only(self: Subscription, loss: Loss, at: float) -> tuple[list[Change], DataLoss]:
        return dead_letter(self, replace(loss, last=loss.first), at)

    with mock.patch.object(Subscription, "dead_letter", first_only):
        _, found = missing(FLIPPED, "never")
    assert any("position of" in line for line in found)


def test_reported_damage_without_damage_is_a_violation() -> None:
    def invented(self: Topic, *_: object, **__: object) -> None:
        raise StoreDamaged("/s1", "so it says")

    with mock.patch.object(Topic, "subscribe", invented), pytest.raises(StoreDamaged):
        run(Fate(servers=1, seconds=2.0), 1)


def test_limits_in_bytes_are_reached() -> None:
    assert missing(TIGHT, "ended by its bytes", "answered full") == (set(), [])


def test_topics_with_subscribers_further_on_both_sides_are_merged() -> None:
    assert missing(QUARTERS, "joined where both sides are acknowledged") == (set(), [])


def test_staged_rows_of_a_sink_move_with_the_topic() -> None:
    assert missing(STAGED, "joined with stages") == (set(), [])
