"""Topics of calls at a server: nothing is put before there is a worker, and there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import Outcome
from tests.server.stage import Stage, bodies

CALLS = "$calls.billing"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    made.confirms = True
    yield made
    made.close()


def test_a_call_without_a_worker_is_refused_and_reaches_a_worker_afterwards(stage: Stage) -> None:
    answer = stage.put(CALLS, 1, [b"call"])
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "no_worker")
    assert CALLS not in stage.core.state.topics
    assert stage.subscribe("w1", CALLS, 5).outcome is Outcome.SUCCESS
    assert stage.put(CALLS, 1, [b"call"]).outcome is Outcome.SUCCESS
    assert stage.put(CALLS, 1, [b"call"]).outcome is Outcome.DUPLICATE
    assert bodies(stage.get("w1", CALLS, None, 5)) == [b"call"]


def test_another_client_serves_only_once_the_first_has_withdrawn(stage: Stage) -> None:
    stage.subscribe("w1", CALLS, 5)
    answer = stage.subscribe("w2", CALLS, 6)
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "another_client_serves_this")
    assert stage.subscribe("w1", CALLS, 5).outcome is Outcome.SUCCESS
    assert stage.subscribe("w1", CALLS, 7).outcome is Outcome.SUCCESS
    stage.unsubscribe("w1", CALLS, 8)
    assert stage.put(CALLS, 1, [b"call"]).reason == "no_worker"
    assert stage.subscribe("w2", CALLS, 9).outcome is Outcome.SUCCESS
    assert stage.put(CALLS, 1, [b"call"]).outcome is Outcome.SUCCESS


def test_a_worker_that_has_withdrawn_serves_again_from_then_on(stage: Stage) -> None:
    stage.subscribe("w1", CALLS, 5)
    stage.put(CALLS, 1, [b"given up"])
    stage.unsubscribe("w1", CALLS, 6)
    assert stage.subscribe("w1", CALLS, 7).outcome is Outcome.SUCCESS
    assert stage.put(CALLS, 2, [b"after"], previous=1).outcome is Outcome.SUCCESS
    assert bodies(stage.get("w1", CALLS, None, 7)) == [b"after"]


def test_a_worker_begins_only_where_every_proxy_knows_no_other_holder(stage: Stage) -> None:
    """Else each side of a split would have a worker of its own, and their merge two: each effect would happen twice."""
    stage.confirms = False
    stage.others = "s2"
    assert stage.subscribe("w1", CALLS, 5).outcome is not Outcome.SUCCESS
    stage.others = ""
    stage.confirms = True
    assert stage.subscribe("w1", CALLS, 5).outcome is Outcome.SUCCESS


def test_a_worker_outlives_the_server(stage: Stage) -> None:
    stage.subscribe("w1", CALLS, 5)
    stage.restart()
    assert stage.put(CALLS, 1, [b"call"]).outcome is Outcome.SUCCESS


def test_topics_of_replies_and_other_topics_are_unaffected(stage: Stage) -> None:
    for topic in ("$replies.shop", "$other", "orders"):
        assert stage.put(topic, 1, [b"x"]).outcome is Outcome.SUCCESS
        assert stage.subscribe("a", topic, 5).outcome is Outcome.SUCCESS
        assert stage.subscribe("b", topic, 6).outcome is Outcome.SUCCESS


def test_calls_from_before_the_confirmed_subscription_of_a_worker_stay_for_it(stage: Stage) -> None:
    """A worker asks again, under a higher number, when the answer was lost; calls may have come in between."""
    stage.subscribe("w1", CALLS, 5)
    stage.put(CALLS, 1, [b"between"])
    assert stage.subscribe("w1", CALLS, 6).outcome is Outcome.SUCCESS
    stage.put(CALLS, 2, [b"after"], previous=1)
    assert bodies(stage.get("w1", CALLS, None, 6)) == [b"between", b"after"]
    assert stage.get("w1", CALLS, None, 5).outcome is Outcome.SUPERSEDED
    stage.restart()
    assert bodies(stage.get("w1", CALLS, None, 6)) == [b"between", b"after"]
