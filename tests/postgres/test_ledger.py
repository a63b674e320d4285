"""The judge of the order of outgoing rows sees each kind of mistake."""

from __future__ import annotations

import pytest

from tests.postgres.ledger import Row, Span, differences

LEDGER: dict[Row, str] = {(1, 1, 0): "a", (1, 1, 1): "a", (1, 2, 0): "a", (2, 1, 0): "b"}
SPANS = {(1, 1): Span(1, 2), (1, 2): Span(3, 4), (2, 1): Span(1, 5)}
RIGHT: dict[str, list[Row]] = {"a": [(1, 1, 0), (1, 1, 1), (1, 2, 0)], "b": [(2, 1, 0)]}


def test_what_is_right_has_no_difference() -> None:
    assert differences(LEDGER, dict(RIGHT), SPANS) == []
    assert differences(LEDGER, {"a": RIGHT["a"], "b": RIGHT["b"]}, SPANS | {(1, 1): Span(1)}) == []


@pytest.mark.parametrize(
    ("received", "said"),
    [
        ({"a": RIGHT["a"]}, "missing: b (2, 1, 0)"),
        ({"a": RIGHT["a"], "b": [(2, 1, 0), (2, 1, 0)]}, "2 times: b (2, 1, 0)"),
        ({**RIGHT, "b": [(2, 1, 0), (2, 2, 0)]}, "never committed: b (2, 2, 0)"),
        ({**RIGHT, "a": [(1, 1, 1), (1, 1, 0), (1, 2, 0)]}, "a: (1, 1, 0) is behind part 1 of its transaction"),
        ({**RIGHT, "a": [(1, 1, 0), (1, 2, 0), (1, 1, 1)]}, "a: (1, 1, 1) is behind (1, 2, 0), which began after"),
    ],
)
def test_the_judge_objects(received: dict[str, list[Row]], said: str) -> None:
    found = differences(LEDGER, dict(received), SPANS)
    assert any(line.startswith(said) for line in found), found


def test_transactions_at_the_same_time_may_interleave() -> None:
    spans = {(1, 1): Span(1, 4), (2, 1): Span(2, 3)}
    ledger: dict[Row, str] = {(1, 1, 0): "a", (1, 1, 1): "a", (2, 1, 0): "a"}
    for order in ([(1, 1, 0), (2, 1, 0), (1, 1, 1)], [(2, 1, 0), (1, 1, 0), (1, 1, 1)]):
        assert differences(ledger, {"a": order}, spans) == []
