"""How long is waited between tries: of webhooks, and of reliable HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.gateway.limits import WEBHOOK_ATTEMPTS_MAX
from pubsub.gateway.webhooks.delivery_worker import BACKOFF
from pubsub.web.backoff import Backoff, retry_after

DAY = 86_400.0
DATE = "Mon, 23 Nov 2026 06:00:00 GMT"
DOUBLING = Backoff.doubling(0.5, 60.0)
attempts_made = st.integers(1, 40)
walls = st.floats(0, 4e9)


def test_all_attempts_together_take_some_days() -> None:
    whole = sum(BACKOFF.seconds(number, 0.0) for number in range(1, WEBHOOK_ATTEMPTS_MAX))
    assert 2 * DAY < whole < 4 * DAY


@given(attempts_made, st.floats(0, 1))
def test_a_back_off_grows_and_is_never_longer_than_a_day_and_its_jitter(attempts: int, chance: float) -> None:
    assert BACKOFF.pauses[0] <= BACKOFF.seconds(attempts, chance) <= DAY * 1.2
    assert BACKOFF.seconds(attempts, 0.0) <= BACKOFF.seconds(attempts + 1, 0.0)


def test_the_receivers_requested_pause_counts_up_to_a_day() -> None:
    assert BACKOFF.seconds(1, 0.0, 100.0) == 100.0
    assert BACKOFF.seconds(1, 0.0, 1e9) == DAY
    assert BACKOFF.seconds(1, 0.0, 1.0) == BACKOFF.pauses[0]


@given(attempts_made, walls, walls)
def test_a_jump_of_the_wall_clock_never_lengthens_a_back_off(attempts: int, due: float, wall: float) -> None:
    assert 0.0 <= BACKOFF.left(attempts, due, wall) <= DAY * 1.2
    if due <= wall:
        assert BACKOFF.left(attempts, due, wall) == 0.0


def test_the_rest_of_a_back_off_is_waited_for_after_a_restart() -> None:
    assert BACKOFF.left(4, 1_000.0, 900.0) == 100.0
    assert BACKOFF.left(0, 1_000.0, 900.0) == 0.0


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1e6))
def test_a_pause_grows_to_its_limit_and_is_never_shorter_than_requested(
    attempts: int, chance: float, asked: float
) -> None:
    found = DOUBLING.seconds(attempts, chance, asked)
    assert asked <= found <= max(60.0, asked)
    assert found >= min(0.25 * 2 ** min(attempts - 1, 20), 30.0)


def test_two_requests_that_failed_together_are_not_repeated_together() -> None:
    assert DOUBLING.seconds(3, 0.1) != DOUBLING.seconds(3, 0.9)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Mon, 23 Nov 2026 06:02:00 GMT", "date": DATE}, 120.0),
        ({"retry-after": "Mon, 23 Nov 2026 05:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Mon, 23 Nov 2026 06:02:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "9" * 30}, 0.0),
        ({}, 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_measured_from_the_answers_own(
    headers: dict[str, str], seconds: float
) -> None:
    assert retry_after(headers.get("retry-after", ""), headers.get("date", "")) == seconds


@given(st.text(max_size=60), st.text(max_size=60))
def test_an_invalid_retry_after_is_no_error(value: str, date: str) -> None:
    assert retry_after(value, date) >= 0.0


def test_a_date_is_measured_from_the_wall_clock_if_the_answer_has_no_date() -> None:
    date = "Mon, 23 Nov 2026 06:02:00 GMT"
    assert retry_after(date, "", 1_795_413_600.0) == 120.0
    assert retry_after(date, DATE, 0.0) == 120.0
