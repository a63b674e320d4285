"""The answers of one loop: each request gets one, and an undone loop makes its answers retries."""

from __future__ import annotations

from collections import Counter

import pytest

from pubsub.protocol import Outcome, Status
from pubsub.server.state.replies import Origin, Replies

ONE, OTHER = Origin(0, b"c", 1), Origin(0, b"c", 2)


@pytest.fixture
def replies() -> Replies:
    return Replies("s1", Counter())


def test_answers_are_taken_once_in_order(replies: Replies) -> None:
    replies.answer(ONE, Outcome.SUCCESS, last=3)
    replies.answer(OTHER, Outcome.FULL, reason="disk")
    assert replies.take() == [
        (ONE, Status("s1", Outcome.SUCCESS, last=3)),
        (OTHER, Status("s1", Outcome.FULL, reason="disk")),
    ]
    assert replies.take() == []


def test_the_last_of_combined_answers_takes_the_place_of_the_first(replies: Replies) -> None:
    replies.answer_together("key", ONE, Outcome.SUCCESS, last=1)
    replies.answer(OTHER, Outcome.EMPTY)
    replies.answer_together("key", OTHER, Outcome.SUCCESS, last=2)
    replies.answer_together("other key", ONE, Outcome.SUCCESS, last=9)
    assert [(origin, getattr(answer, "last", None)) for origin, answer in replies.take()] == [
        (OTHER, 2),
        (OTHER, -1),
        (ONE, 9),
    ]
    replies.answer_together("key", ONE, Outcome.SUCCESS, last=3)
    assert len(replies.take()) == 1, "of another loop"


def test_unserviceable_bytes_are_refused_in_one_word_and_counted() -> None:
    counters: Counter[str] = Counter()
    replies = Replies("s1", counters)
    replies.refuse(ONE, "no such\tthing \u2013 here")
    replies.refuse(Origin(0, b"c", 0), "nobody waits for an answer")
    assert replies.take() == [(ONE, Status("s1", Outcome.REFUSED, reason="no_such_thing___here"))]
    assert counters["refused"] == 2


def test_answers_of_an_undone_loop_become_retries_except_refusals(replies: Replies) -> None:
    replies.answer(ONE, Outcome.SUCCESS, last=3)
    replies.refuse(OTHER, "why")
    replies.retry(Outcome.FULL, "disk")
    assert replies.take() == [
        (ONE, Status("s1", Outcome.FULL, reason="disk")),
        (OTHER, Status("s1", Outcome.REFUSED, reason="why")),
    ]
