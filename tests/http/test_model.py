"""Seeds of the model; the model finds each deliberate mistake."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import apsw
import pytest

from pubsub.errors import PubsubError
from tests.http.breakages import BREAKAGES, broken
from tests.http.model import simulate
from tests.http.processes import Objection

SEEDS = range(30)
SEARCHED = range(120)


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What the shells say of disks that fail is not what these tests are about."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_each_request_happens_once_with_one_response_under_all_faults() -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        happened.update(simulate(seed).happened)
    wanted = {"killed", "killed at its disk", "power cut", "clock set", "started anew", "lost", "doubled", "StoreFull"}
    assert wanted - happened.keys() == set(), "the seeds do not meet every fault"


def test_a_seed_is_one_history() -> None:
    first, again = simulate(7), simulate(7)
    assert first.happened == again.happened
    assert first.done == again.done


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKAGES)
def test_a_deliberate_mistake_is_caught(name: str) -> None:
    for seed in SEARCHED:
        try:
            with broken(name):
                simulate(seed)
        except (Objection, PubsubError, apsw.Error):
            return
    pytest.fail(f"no seed of {len(SEARCHED)} objects to it")
