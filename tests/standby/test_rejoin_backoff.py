"""A standby that comes and goes is waited for more and more seldom, and as ever once it has stayed."""

from __future__ import annotations

import pytest

from pubsub.server.standby.replication.rejoin_backoff import STEADY_SILENCES, WAIT_SILENCES_MAX, RejoinBackoff

SILENCE = 0.5


def wait(damping: RejoinBackoff, now: float) -> float:
    """How long, in silences."""
    return next(steps for steps in range(100) if not damping.waits(now + steps * SILENCE))


def test_the_first_failure_causes_no_wait_and_later_ones_longer_waits() -> None:
    damping = RejoinBackoff(SILENCE)
    assert not damping.waits(100.0)
    waits = []
    for number in range(7):
        damping.failed(100.0 + number)
        waits.append(wait(damping, 100.0 + number))
    assert waits == [0, 1, 3, 7, 15, WAIT_SILENCES_MAX, WAIT_SILENCES_MAX]


@pytest.mark.parametrize(("silences", "waits"), [(STEADY_SILENCES, 0), (STEADY_SILENCES - 1, 7)])
def test_a_long_time_in_sync_clears_the_failures(silences: int, waits: int) -> None:
    damping, now = RejoinBackoff(SILENCE), 100.0
    for _ in range(3):
        damping.failed(now)
    for step in range(silences + 1):
        damping.look(now + step * SILENCE, in_sync=True)
    now += silences * SILENCE
    damping.look(now, in_sync=False)
    assert wait(damping, now) == waits
    damping.look(now + SILENCE, in_sync=False)
    assert wait(damping, now) == waits
