"""The changes of a loop become values once, and acknowledgements wait for other changes."""

from __future__ import annotations

import pytest

from pubsub.server.state.uncommitted import ACKNOWLEDGE_SECONDS, Uncommitted
from pubsub.server.topic import changes as c
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic
from tests.server.topics import at_the_end

A = "a" * 16


@pytest.fixture
def topics() -> dict[str, Topic]:
    log = Log(1, A)
    topic = Topic(1, "t", log, {A: log}, history=(Span(A, 1),))
    topic.subscribe("bob", 5, 5, True, at_the_end(topic))
    topic.append(7, 1, 2, 10)
    return {"t": topic}


def test_a_value_changed_often_is_written_once(topics: dict[str, Topic]) -> None:
    uncommitted = Uncommitted(topics)
    for _ in range(3):
        uncommitted.last("t", 7)
        uncommitted.subscription("t", "bob")
        uncommitted.topic("t")
    topics["t"].append(7, 3, 5, 10)
    out = uncommitted.take(0.0)
    assert [type(change).__name__ for change in out] == ["TopicChanged", "LastMoved", "SubscriptionChanged"]
    assert c.LastMoved(1, 7, 7) in out
    assert uncommitted.take(0.0) == []


def test_an_acknowledgement_alone_waits_a_moment(topics: dict[str, Topic]) -> None:
    uncommitted = Uncommitted(topics)
    uncommitted.acknowledged("t", "bob")
    assert uncommitted.take(10.0) == []
    uncommitted.acknowledged("t", "bob")
    assert uncommitted.take(10.1) == []
    assert uncommitted.deadline() == 10.0 + ACKNOWLEDGE_SECONDS
    assert [type(change).__name__ for change in uncommitted.take(uncommitted.deadline())] == ["SubscriptionChanged"]
    assert uncommitted.deadline() == float("inf")


def test_an_acknowledgement_is_written_with_any_commit(topics: dict[str, Topic]) -> None:
    uncommitted = Uncommitted(topics)
    uncommitted.acknowledged("t", "bob")
    uncommitted.rows.append(c.BatchQuarantined(1, 1))
    assert [type(change).__name__ for change in uncommitted.take(10.0)] == ["BatchQuarantined", "SubscriptionChanged"]


def test_dropping_names_every_topic_that_was_marked_or_taken(topics: dict[str, Topic]) -> None:
    for name in ("u", "v", "w"):
        topics[name] = topics["t"]
    uncommitted = Uncommitted(topics)
    uncommitted.topic("t")
    uncommitted.take(0.0)
    uncommitted.last("u", 7)
    uncommitted.subscription("v", "bob")
    uncommitted.acknowledged("w", "bob")
    assert uncommitted.revert() == ["t", "u", "v", "w"]
    assert uncommitted.take(100.0) == []
    assert uncommitted.revert() == []


def test_a_removed_topic_is_not_written(topics: dict[str, Topic]) -> None:
    uncommitted = Uncommitted(topics)
    uncommitted.topic("t")
    uncommitted.last("t", 7)
    uncommitted.subscription("t", "bob")
    uncommitted.acknowledged("t", "bob")
    del topics["t"]
    uncommitted.gone("t")
    assert uncommitted.take(100.0) == []
    assert uncommitted.revert() == ["t"]
