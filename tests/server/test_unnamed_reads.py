"""Range reads of a topic itself, without a name, across a move and a merge: a plan names the omissions."""

from __future__ import annotations

from typing import Any

from pubsub.protocol import Position, parse_position
from tests.server.moving import Pair, put
from tests.server.named import everything, make, plan
from tests.server.stage import Stage


def unnamed(stage: Stage, after: Position | None = None, until: Position | None = None) -> dict[str, Any]:
    return plan(stage, after, until, name="")


def legs(facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a job compares: of each leg its place, and what is left out of it."""
    return [(*leg[:3], left) for leg, left in zip(facts["legs"], facts["left_out"], strict=True)]


def overlap(pair: Pair) -> None:
    """Alice's first record is at both, since the answer to it was lost; bob's and her second at s1, carl's at s2."""
    assert put(pair["s1"], "bob", 5, 0, b"b1") == "success"
    for name in ("s1", "s2"):
        assert put(pair[name], "alice", 10, 0, b"a1") == "success"
    assert put(pair["s1"], "alice", 11, 10, b"a2") == "success"
    assert put(pair["s2"], "carl", 20, 0, b"c1") == "success"


def test_a_plan_names_the_messages_of_the_given_log_that_a_merge_omits(pair: Pair) -> None:
    overlap(pair)
    (given,), (kept,) = unnamed(pair["s1"])["legs"], unnamed(pair["s2"])["legs"]
    start, end = (given[0], 1), (given[0], 3)
    first, last = (kept[0], 0), (kept[0], 2)
    assert everything(pair["s1"], start, end, name="") == [b"a1", b"a2"]
    planned, own = legs(unnamed(pair["s1"], start, end)), legs(unnamed(pair["s2"], first, last))
    assert [left for *_, left in planned + own] == [0, 0]
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    for _ in range(2):
        joined = pair["s2"]
        assert everything(joined, start, end, name="") == [b"a2"], "the same range is other records now"
        assert legs(unnamed(joined, start, end)) != planned
        assert everything(joined, first, last, name="") == [b"a1", b"c1"]
        assert legs(unnamed(joined, first, last)) == own
        joined.restart()


def test_a_topic_moved_to_an_empty_server_has_the_same_plan(pair: Pair) -> None:
    assert put(pair["s1"], "alice", 10, 0, b"a1", b"a2") == "success"
    before = unnamed(pair["s1"])
    start = parse_position(f"{before['legs'][0][0]}.0")
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    end = parse_position(before["latest"])
    assert legs(unnamed(pair["s2"], start, end)) == legs(before)
    assert everything(pair["s2"], start, end, name="") == [b"a1", b"a2"]


def test_a_merged_topic_that_moves_on_has_the_same_plan(pair: Pair) -> None:
    overlap(pair)
    pair.merge("s1", "s2")
    pair.turns()
    before = unnamed(pair["s2"])
    assert any(before["left_out"])
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    first = before["legs"][0]
    start, end = parse_position(f"{first[0]}.{first[1] - 1}"), parse_position(before["latest"])
    assert legs(unnamed(pair["s1"], start, end)) == legs(before)


def test_a_named_subscriptions_plan_names_no_omissions(pair: Pair) -> None:
    """Its ranges are the same records across a merge (`test_reads.py`)."""
    overlap(pair)
    make(pair["s1"])
    assert "left_out" not in plan(pair["s1"], None)
