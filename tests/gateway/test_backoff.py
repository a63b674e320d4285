from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.gateway.limits import WEBHOOK_ATTEMPTS_MAX
from pubsub.gateway.webhooks.backoff import BACKOFF_SECONDS, JITTER, backoff, left

DAY = 86_400.0
attempts_made = st.integers(1, 40)
walls = st.floats(0, 4e9)


def test_all_attempts_take_some_days() -> None:
    whole = sum(backoff(number, 0.0) for number in range(1, WEBHOOK_ATTEMPTS_MAX))
    assert 2 * DAY < whole < 4 * DAY


@given(attempts_made, st.floats(0, 1))
def test_a_back_off_grows_and_is_never_longer_than_a_day_and_its_jitter(attempts: int, chance: float) -> None:
    assert BACKOFF_SECONDS[0] <= backoff(attempts, chance) <= DAY * (1 + JITTER)
    assert backoff(attempts, 0.0) <= backoff(attempts + 1, 0.0)


def test_what_the_receiver_asks_for_counts_up_to_a_day() -> None:
    assert backoff(1, 0.0, 100.0) == 100.0
    assert backoff(1, 0.0, 1e9) == DAY
    assert backoff(1, 0.0, 1.0) == BACKOFF_SECONDS[0]


@given(attempts_made, walls, walls)
def test_a_wall_clock_that_jumps_makes_nothing_wait_for_longer_than_its_back_off(
    attempts: int, due: float, wall: float
) -> None:
    assert 0.0 <= left(attempts, due, wall) <= DAY * (1 + JITTER)
    if due <= wall:
        assert left(attempts, due, wall) == 0.0


def test_what_is_left_of_a_back_off_is_waited_for_after_a_restart() -> None:
    assert left(4, 1_000.0, 900.0) == 100.0
    assert left(0, 1_000.0, 900.0) == 0.0
