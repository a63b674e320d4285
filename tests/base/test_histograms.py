"""Histograms as values."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.histograms import AGES, COUNTS, SECONDS, Histogram


def test_a_value_counts_in_the_first_bucket_whose_bound_is_not_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    counted = histogram.counted()
    assert counted.counts == (2, 2, 1)
    assert counted.total == 6.6


def test_a_value_observed_several_times_counts_each_time() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 4)
    assert (histogram.counted().counts, histogram.counted().total) == ((4, 0), 2.0)


def test_returned_counts_do_not_change() -> None:
    histogram = Histogram((1.0,))
    before = histogram.counted()
    histogram.observe(0.5)
    assert before.counts == (0, 0)


def test_bounds_must_rise() -> None:
    for bounds in (SECONDS, AGES, COUNTS):
        assert all(low < high for low, high in pairwise(bounds))


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=50))
def test_no_value_is_lost(values: list[float]) -> None:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.observe(value)
    counted = histogram.counted()
    assert sum(counted.counts) == len(values)
    for index, bound in enumerate(SECONDS):
        assert sum(counted.counts[: index + 1]) == sum(value <= bound for value in values)
