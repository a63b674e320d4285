"""Open batches in the simulation: puts begun together in small runs, and each breakage of their rules caught."""

from __future__ import annotations

import pytest

from tests.simulation.breakages import open_batches
from tests.simulation.sample import require_caught, sampled
from tests.simulation.simulation import shortened

TRIES_MAX = 60
"""Seeds from the first on; each breakage was shown by one of some ten."""

EACH_TIME = ("group written in another order", "another caller's result")
"""The first seed shows these."""


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(open_batches.breakage.breakages, EACH_TIME))
def test_a_breakage_is_caught(title: str) -> None:
    require_caught(title, shortened, range(1, 1 + TRIES_MAX))
