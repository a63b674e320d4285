from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pubsub.gateway.ids import message_id, ranges


@given(st.sets(st.integers(1, 60)))
def test_runs_have_the_same_counters(counters: set[int]) -> None:
    ordered = sorted(counters)
    runs = ranges(ordered)
    assert [number for first, count in runs for number in range(first, first + count)] == ordered
    assert all(first + count < following for (first, count), (following, _) in pairwise(runs))


def test_a_range_is_one_run() -> None:
    assert ranges(range(5, 8)) == [(5, 3)]
    assert ranges(range(0)) == []


def test_an_id_names_the_publisher_and_the_counter() -> None:
    assert message_id("http.alice/00ff", 7) == "00ff-7"
