"""The store's own time continues over restarts, and does not follow changes of the wall clock.

The rule is docs/explanation/reliable-http.md, Q7.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.http.core.elapsed import DOWNTIME_SECONDS_MAX, Anchor, resume

LAST = Anchor(100.0, 5000.0, "b1", 1.7e9)
WALLS = st.floats(0, 4e9)


def test_the_elapsed_time_begins_at_zero() -> None:
    assert resume(None, 7.0, "b", 1e9, counts_boots=True).elapsed == 0.0


@given(WALLS, st.booleans())
def test_the_uptime_gives_the_time_between_processes_of_one_boot(wall: float, counts: bool) -> None:
    assert resume(LAST, 5060.0, "b1", wall, counts_boots=counts).elapsed == 160.0


@given(WALLS, st.floats(0, 1e7), st.sampled_from(["b1", "b2", ""]), st.booleans())
def test_the_elapsed_time_never_runs_backwards_and_never_leaps(
    wall: float, uptime: float, boot: str, counts: bool
) -> None:
    passed = resume(LAST, uptime, boot, wall, counts_boots=counts).elapsed - LAST.elapsed
    assert 0.0 <= passed <= max(DOWNTIME_SECONDS_MAX, 1e7)


@pytest.mark.parametrize(("wall", "passed"), [(1.7e9 + 60, 60.0), (1.7e9 - 60, 0.0), (4e9, DOWNTIME_SECONDS_MAX)])
def test_the_time_across_boots_follows_the_wall_clock_at_a_sender_only(wall: float, passed: float) -> None:
    assert resume(LAST, 3.0, "b2", wall, counts_boots=True).elapsed == 100.0 + passed
    assert resume(LAST, 3.0, "b2", wall, counts_boots=False).elapsed == 100.0
