"""Members and servers of two releases in the simulated world: none is sent bytes of a form that it does not read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.simulation.breakages.forms import FORM
from tests.simulation.breakages.table import BREAKAGES
from tests.simulation.fate import Fate, draw, forms, pair
from tests.simulation.sample import require_caught, run_once
from tests.simulation.simulation import Result

SEEDS = 12
TRIES_MAX = 40

CAUGHT = [title for title in BREAKAGES if title.startswith(FORM)]


def fate(seed: int) -> Fate:
    """A small run of a pair, with one or two members of an older release, mostly upgraded when they start again.

    In each second run there is another server, which may be of an older release too, and topics move.
    """
    random = Random(f"small {seed}")
    moves = {"move": 3.0, "kill": 0.3} if seed % 2 else {}
    return Fate(
        servers=1 + seed % 2,
        older=random.choice((0, 1)),
        pairs=1,
        proxies=random.choice((2, 3)),
        clients=2,
        topics=2,
        seconds=3.0,
        think=0.02,
        heartbeat=0.2,
        older_members=random.choice((1, 2, 2)),
        upgrades=random.random() < 0.7,
        faults={
            "kill primary": 0.7,
            "switch": 0.7,
            "part members": 0.3,
            "both": 0.2,
            "power": 0.3,
            "full": 0.2,
            **moves,
        },
    )


def small(seed: int) -> Result:
    return run_once(fate, seed)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (SEEDS, 2 * SEEDS))])
def test_nothing_is_found_and_both_forms_are_sent_and_an_older_release_takes_its_own(first: int) -> None:
    counters: Counter[str] = Counter()
    for seed in range(first, first + SEEDS):
        result = small(seed)
        assert not result.violations, f"seed {seed} of tests/simulation/test_forms.py"
        counters.update(result.counters)
    for what in ("taken by an older release", "of form 1 taken by this release", "of form 2 taken by this release"):
        assert counters[f"entries {what}"] > SEEDS
        assert counters[f"chunks {what}"] > SEEDS // 3


def test_some_runs_with_pairs_have_older_members_and_are_otherwise_unchanged() -> None:
    drawn = [(forms(pair(draw(Random(seed)), seed), seed), pair(draw(Random(seed)), seed)) for seed in range(200)]
    paired = [new for new, old in drawn if old.pairs]
    assert 0 < sum(bool(new.older_members) for new in paired) < len(paired) / 2
    assert all(replace(new, older_members=0, upgrades=old.upgrades) == old for new, old in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("title", CAUGHT)
def test_a_breakage_is_caught(title: str) -> None:
    require_caught(title, fate, range(TRIES_MAX))


def test_a_breakage_is_known() -> None:
    assert len(CAUGHT) >= 3
