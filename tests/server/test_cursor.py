"""A cursor alone: the rest behind a position, the effect of an acknowledgement, and the delivered end."""

from __future__ import annotations

import pytest

from pubsub.protocol import Position
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import Span

A, B = "a" * 16, "b" * 16


@pytest.fixture
def cursor() -> Cursor:
    return Cursor(0, (A, 2), (Span(A, 3, 6), Span(B, 1)))


def test_an_acknowledgement_drops_the_backlog_up_to_its_position(cursor: Cursor) -> None:
    assert cursor.acknowledge((A, 4))
    assert (cursor.acknowledged, cursor.backlog) == ((A, 4), (Span(A, 5, 6), Span(B, 1)))
    assert cursor.acknowledge((B, 3))
    assert (cursor.acknowledged, cursor.backlog) == ((B, 3), (Span(B, 4),))


@pytest.mark.parametrize("position", [(A, 1), (A, 6), ("c" * 16, 1)])
def test_a_position_in_no_span_changes_nothing(cursor: Cursor, position: Position) -> None:
    assert cursor.behind(position) is None
    assert not cursor.acknowledge(position)
    assert (cursor.acknowledged, cursor.backlog) == ((A, 2), (Span(A, 3, 6), Span(B, 1)))


def test_the_complete_backlog_is_behind_the_acknowledged_position(cursor: Cursor) -> None:
    assert cursor.behind(None) == cursor.behind((A, 2)) == cursor.backlog
    assert cursor.behind((A, 5)) == (Span(B, 1),)


def test_the_furthest_position_that_was_handed_out_counts_in_the_order_of_the_spans(cursor: Cursor) -> None:
    for position, furthest in [((A, 4), (A, 4)), ((A, 3), (A, 4)), ((B, 1), (B, 1)), ((A, 5), (B, 1))]:
        cursor.hand_out(position)
        assert cursor.handed == furthest
    cursor.acknowledge((B, 1))
    cursor.hand_out((B, 5))
    assert cursor.handed == (B, 5), "what was handed out before is acknowledged"


def test_only_possibly_delivered_messages_are_marked(cursor: Cursor) -> None:
    assert cursor.marked() == cursor.backlog
    cursor.hand_out((A, 4))
    assert cursor.marked() == (Span(A, 3, 5, doubtful=True), Span(A, 5, 6), Span(B, 1))
    assert not cursor.doubtful
    cursor.backlog = cursor.marked()
    assert cursor.doubtful
