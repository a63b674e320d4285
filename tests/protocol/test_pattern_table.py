"""The table of patterns: rows told in any order make equal tables, and the index finds what `matches` finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.protocol.pattern_table import (
    CLIENT_PATTERNS_MAX,
    ENDED_MAX,
    NO_PATTERNS,
    PATTERNS_MAX,
    PatternRow,
    PatternTable,
    split_patterns,
)
from pubsub.protocol.patterns import matches
from pubsub.protocol.rows import join_rows

tokens = st.sampled_from(["a", "b", "*"])
patterns = st.builds(
    lambda some, rest: ".".join([*some, *rest]), st.lists(tokens, max_size=2), st.sampled_from([["*"], [">"]])
)
rows = st.builds(PatternRow, st.sampled_from(["x", "y"]), patterns, st.integers(1, 3), st.booleans(), st.integers(0, 2))
topics = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(rows, max_size=12), st.randoms(use_true_random=False))
def test_rows_told_in_any_order_and_twice_make_equal_tables(told: list[PatternRow], random: object) -> None:
    one, other = PatternTable(told), PatternTable()
    shuffled = told * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for row in shuffled:
        other.admit(row)
    assert one.rows == other.rows
    assert one.digest == other.digest
    assert len(one) == sum(row.on for row in one.rows.values())


@given(st.lists(rows, max_size=12), topics)
def test_the_index_finds_the_patterns_that_match(told: list[PatternRow], topic: str) -> None:
    table = PatternTable(told)
    expected = {row for row in table.rows.values() if row.on and matches(row.pattern, topic)}
    assert set(table.matching(topic)) == expected
    assert len(list(table.matching(topic))) == len(expected)


@given(st.lists(rows, max_size=6), rows)
def test_a_change_can_be_undone(told: list[PatternRow], row: PatternRow) -> None:
    table = PatternTable(told)
    before, digest, old = dict(table.rows), table.digest, table.rows.get(row.key)
    table.admit(row)
    table.replace(old, row.key)
    assert (table.rows, table.digest) == (before, digest)


def test_a_table_without_rows_has_the_digest_that_servers_announce() -> None:
    assert PatternTable().digest == NO_PATTERNS
    assert not PatternTable()


def test_the_first_stamp_of_a_number_and_its_end_count() -> None:
    table = PatternTable([PatternRow("x", "a.>", 5, True, 70)])
    assert table.admit(PatternRow("x", "a.>", 5, True, 90)) is None
    assert table.admit(PatternRow("x", "a.>", 4, False, 0)) is None
    assert table.admit(PatternRow("x", "a.>", 5, True, 60)) == PatternRow("x", "a.>", 5, True, 60)
    assert table.admit(PatternRow("x", "a.>", 6, False, 0)) == PatternRow("x", "a.>", 6, False, 0)
    assert table.admit(PatternRow("x", "a.>", 5, True, 50)) is None
    assert (len(table), table.ended) == (0, 1)


def test_limits_name_themselves() -> None:
    table = PatternTable(PatternRow("x", f"a{n}.>", 1, True, 1) for n in range(CLIENT_PATTERNS_MAX))
    assert table.excess("x", "b.>") == "CLIENT_PATTERNS_MAX"
    assert table.excess("x", "a1.>") == ""
    assert table.excess("y", "b.>") == ""
    full = PatternTable(PatternRow(f"c{n}", "a.>", 1, True, 1) for n in range(PATTERNS_MAX))
    assert full.excess("x", "b.>") == "PATTERNS_MAX"
    ended = PatternTable(PatternRow(f"c{n}", "a.>", 1, False, 0) for n in range(ENDED_MAX))
    assert ended.excess("x", "b.>") == "ENDED_MAX"
    assert ended.excess("c5", "a.>") == ""


@given(st.lists(rows, max_size=6))
def test_a_body_round_trips(told: list[PatternRow]) -> None:
    assert split_patterns(join_rows(told)) == tuple(told)


@pytest.mark.parametrize(
    "body",
    [
        b"x a.> 1 1",
        b"x a 1 1 5",
        b"x a.> 1 2 5",
        b"x a.> -1 1 5",
        b"x a.> 1 1 5\n",
        b"x\xff a.> 1 1 5",
        b"x y a.> 1 1 5",
        b"\n".join([b"x a.> 1 1 5"] * 2 * (PATTERNS_MAX + ENDED_MAX + 1)),
    ],
)
def test_a_malformed_body_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        split_patterns(body)
