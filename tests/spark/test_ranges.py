"""The share of each topic in a batch, and its split into tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.client.requests import NOBODY
from pubsub.protocol import Outcome, Status, Subscribe, decode, encode, format_position, parse_position
from pubsub.spark.ranges import Plan, Topics, cut, shares, write_offsets

A, B = "00000000000000aa", "00000000000000bb"


def plan(*legs: tuple[str, int, int]) -> Plan:
    last = (legs[-1][0], legs[-1][2] - 1) if legs else (A, 0)
    return Plan((A, 0), last, last, tuple((log, low, stop, 10 * (stop - low)) for log, low, stop in legs))


JOINED = plan((A, 1, 11), (B, 5, 8), (A, 11, 14))


def test_a_position_is_counted_along_the_legs() -> None:
    assert (JOINED.records, JOINED.bytes) == (16, 160)
    assert [JOINED.at(count) for count in (1, 10, 11, 13, 14, 16, 99)] == [
        (A, 1), (A, 10), (B, 5), (B, 7), (A, 11), (A, 13), (A, 13),
    ]  # fmt: skip
    assert [JOINED.records_until(JOINED.at(count)) for count in range(1, 17)] == list(range(1, 17))


@given(st.integers(1, 20))
def test_parts_are_even_and_complete(size: int) -> None:
    parts = cut("t", None, JOINED, size)
    assert sum(part.records for part in parts) == 16
    assert max(part.records for part in parts) <= size
    assert max(part.records for part in parts) - min(part.records for part in parts) <= 1
    assert parts[0].after == ""
    assert all(one.until == other.after for one, other in pairwise(parts))
    assert parse_position(parts[-1].until) == JOINED.latest


def test_a_range_without_records_has_no_parts() -> None:
    assert cut("t", (A, 5), plan(), 10) == []
    assert cut("t", (A, 5), plan((A, 6, 7)), 10)[0].after == format_position((A, 5))


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000), min_size=1), st.integers(1, 500))
def test_a_limit_is_shared_in_proportion_and_never_exceeded(wanted: dict[str, int], limit: int) -> None:
    found = shares(limit, wanted)
    assert found.keys() == wanted.keys()
    assert all(found[topic] <= wanted[topic] for topic in wanted)
    assert sum(found.values()) == min(limit, sum(wanted.values()))
    total = sum(wanted.values())
    if total > limit:
        assert all(abs(found[topic] - limit * count / total) <= 1 for topic, count in wanted.items())


@pytest.mark.parametrize("seconds", [0.0, 1e10])
def test_a_wrong_clock_gives_a_number_within_the_range_of_messages(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    class Link:
        asker = NOBODY

        def ask(self, request: Subscribe) -> Status:
            assert decode(*encode(request)) == request
            return Status("s1", Outcome.SUCCESS, position=(A, 1))

    monkeypatch.setattr("time.time", lambda: seconds)
    assert Topics(Link(), "s").subscribe("t", "latest") == (A, 1)  # type: ignore[arg-type]


def test_a_topic_with_few_records_gets_its_share() -> None:
    assert shares(10, {"large": 1000, "small": 1}) == {"large": 9, "small": 1}


@pytest.mark.parametrize("order", [("b", "a"), ("a", "b")])
def test_offsets_are_written_in_one_order(order: tuple[str, str]) -> None:
    assert str(write_offsets(dict.fromkeys(order, (A, 1)))) == str({"a": f"{A}.1", "b": f"{A}.1"})
