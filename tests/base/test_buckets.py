"""Token buckets: the rate holds, and nothing waits permanently (docs/explanation/quotas.md, QU1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.buckets import Bucket, Pace


def test_a_full_bucket_lets_one_second_of_units_go_at_once() -> None:
    bucket = Bucket(10, 0.0)
    for _ in range(10):
        assert bucket.wait(0.0) == 0.0
        bucket.take(1)
    assert bucket.wait(0.0) == 0.1
    assert bucket.wait(0.025) == pytest.approx(0.075)
    assert bucket.wait(100.0) == 0.0
    bucket.take(10)
    assert bucket.wait(100.0) == 0.1, "more than one second is not saved up"


def test_a_large_amount_waits_no_longer_than_a_small_one_and_leaves_a_debt() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(9)
    assert bucket.wait(0.0) == 0.0
    bucket.take(35)
    assert bucket.wait(0.0) == 3.5
    assert bucket.wait(3.5) == 0.0


@given(st.integers(1, 1000), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 3000)), max_size=60))
def test_the_rate_holds_within_a_bucket_and_one_amount_and_a_wait_suffices(
    rate: int, asks: list[tuple[float, int]]
) -> None:
    bucket, now, taken = Bucket(rate, 0.0), 0.0, 0
    for pause, amount in asks:
        now += pause
        now += bucket.wait(now) + 1e-6
        assert bucket.wait(now) == 0.0
        assert taken <= rate * (now + 1) + 1e-3
        bucket.take(amount)
        taken += amount


def test_a_clock_that_stands_still_gives_nothing_away() -> None:
    bucket = Bucket(1, 5.0)
    bucket.take(1)
    assert bucket.wait(4.0) == bucket.wait(5.0) == 1.0


def test_the_slower_of_two_quotas_decides_and_held_time_counts_once() -> None:
    pace = Pace((2, 100), 0.0)
    assert pace.after(0.0) == 0
    pace.take(1, 149)
    assert pace.after(0.0) == 500
    assert pace.after(0.25) == 250
    assert (pace.held, pace.held_seconds) == (2, 0.5)
    assert Pace((None, None), 0.0).after(0.0) == 0
