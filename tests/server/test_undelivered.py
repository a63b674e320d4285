"""What a subscriber is told to have lost with a deleted topic (docs/explanation/deletion.md, UD7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pubsub.protocol import Get, Position
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.deletions import Deleted
from pubsub.server.state.undelivered import Lost, lost, value_of
from pubsub.server.topic.spans import Span
from tests.server.moving import Pair
from tests.server.stage import Stage

LOG, OTHER = "a" * 16, "b" * 16
EMPTY = Span(OTHER, 1)


def get(last: Position | None, number: int = 5) -> Get:
    return Get("ann", "t", last, number, 0)


@pytest.mark.parametrize(
    ("last", "known", "loss"),
    [
        (None, True, ((LOG, 3), (LOG, 9))),
        ((LOG, 2), True, ((LOG, 3), (LOG, 9))),
        ((LOG, 8), True, ((LOG, 9), (LOG, 9))),
        ((LOG, 9), True, None),
        ((LOG, 1), False, None),
        ((LOG, 10), False, None),
        ((OTHER, 5), False, None),
    ],
)
def test_the_loss_is_known_from_a_received_position_in_the_range_alone(
    last: Position | None, known: bool, loss: Lost
) -> None:
    assert lost(f"5 {LOG} 2 9", get(last)) == (known, loss)
    assert lost(f"5 {LOG} 2 9", get(last, number=6)) == (False, None)
    assert lost("", get(last)) == (False, None)


def test_a_subscriber_that_acknowledged_everything_has_lost_nothing() -> None:
    assert lost(f"5 {LOG} 9 9", get((LOG, 9))) == (True, None)
    assert lost(f"5 {LOG} 9 9", get((OTHER, 1))) == (False, None)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"low": 2}, False),
        ({"watermark": 1}, False),
        ({"doubtful": True}, False),
    ],
    ids=["its own", "after others", "from a merge", "perhaps at another directory"],
)
def test_a_range_is_kept_only_if_the_subscriber_has_received_none_of_it(
    stage: Stage, change: dict[str, int], known: bool
) -> None:
    stage.subscribe("ann", "t", 5)
    log = stage.put("t", 1).log
    stage.put("t", 2)
    topic = stage.core.state.topics["t"]
    subscription = topic.subscriptions["ann"]
    spans = (Span(**{"log": log, "low": 1, **change}), EMPTY)  # type: ignore[arg-type]
    subscription = replace(subscription, cursor=replace(subscription.cursor, backlog=spans))
    assert value_of(topic, subscription) == (f"5 {log} 0 2" if known else "")


def test_no_range_is_kept_of_messages_in_the_logs_of_two_holders(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    for name in ("s1", "s2"):
        pair[name].subscribe("ann", "t", 5)
        pair[name].put("t", 1)
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s2"]
    kept = pair["s2"].core.state.undelivered
    pair["s2"].say(Deleted("p", "", (Deletion("t", 7),)), origin=b"", callback=0)
    pair["s2"].loop()
    assert pair["s2"].core.state.topics == {}
    assert kept.rows == {}
    assert kept.lost(get(None)) == (False, None)
    pair.close()
