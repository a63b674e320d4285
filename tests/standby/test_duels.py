"""Ballots alone, many of them: no chosen view is overlooked; and each omitted rule is caught."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.standby.breakages import broken
from tests.standby.duels import Duel

CAUGHT = {
    "eligible": 5,
    "majority": 0,
    "promise": 0,
    "told": 109,
    "durable": 14,
    "attempt": 141,
    "possible_late": 577,
    "amnesia": 243,
    "readmit": 18,
}
"""A rule to the first seed that objects where it is left out."""


def test_no_chosen_view_is_overlooked() -> None:
    counts: Counter[str] = Counter()
    for seed in range(500):
        duel = Duel(seed).run()
        counts.update(duel.counts)
        assert not duel.objections, seed
    kinds = ("takeover", "resume", "handover", "remove_from_sync", "add_to_sync", "lost", "readmitted")
    assert min(counts[kind] for kind in kinds) > 100, counts


@pytest.mark.parametrize("name", CAUGHT)
def test_an_omitted_rule_is_caught(name: str) -> None:
    with broken(name):
        assert Duel(CAUGHT[name]).run().objections
