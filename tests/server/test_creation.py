"""The creation of a topic by an operator, and a server that creates none by itself.

The rules are those of docs/explanation/topics.md, U1 and U2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import Configure, Get, Message, Outcome, Publish, Stage, Subscribe, Unsubscribe
from pubsub.protocol.topic_settings import encode_settings
from tests.server.stage import Stage as Server
from tests.server.stage import put
from tests.server.test_settings import configure

SINK = "0123456789abcdef"


def create(number: int, **values: str) -> Configure:
    return Configure("ops", "t", f"{number:016x}", create=1, values=encode_settings(values))


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Server]:
    stage = Server(tmp_path / "strict", topics_auto=False)
    yield stage
    stage.close()


def test_a_creation_makes_the_topic_and_its_repeat_succeeds(stage: Server) -> None:
    assert stage.ask(create(1, keep="1d")).outcome is Outcome.SUCCESS
    stage.restart()
    assert stage.ask(create(1, keep="1d")).outcome is Outcome.SUCCESS
    assert stage.core.state.topics["t"].settings.version == f"{1:016x}"


def test_a_creation_of_a_topic_that_exists_is_refused_with_the_settings_in_force(stage: Server) -> None:
    stage.put("t", 1)
    answer = stage.ask(create(1, keep="1d"))
    assert answer.outcome is Outcome.SUPERSEDED
    assert json.loads(bytes(answer.body))["keep"] == ["none"]
    configure(stage, keep="2d")
    assert json.loads(bytes(stage.ask(create(2, keep="1d")).body))["keep"] == ["2d"]


@pytest.mark.parametrize(
    "message",
    [
        put("t", 1),
        Subscribe("bob", "t", 5, 5),
        Subscribe("bob", "t", 5, 5, name="shared"),
        Unsubscribe("bob", "t", 5, 5),
        Stage("out", "t", 0, SINK, "0.a", 0, 1, 0, body=b"x"),
        Publish("out", "t", 0, SINK, {}),
        Configure("ops", "t", "a" * 16, values=encode_settings({"keep": "1d"})),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_server_that_creates_no_topic_lets_a_request_for_one_wait(strict: Server, message: Message) -> None:
    answer = strict.ask(message)
    assert (answer.outcome, answer.reason[:31]) == (Outcome.UNAVAILABLE, "only_an_operator_creates_topics")
    assert "t" not in strict.core.state.topics
    strict.ask(create(1))
    assert strict.ask(put("t", 1)).outcome is Outcome.SUCCESS


def test_a_server_that_creates_no_topic_answers_reads_and_serves_calls(strict: Server) -> None:
    assert strict.ask(Get("bob", "t", None, 5, 5)).outcome is Outcome.UNKNOWN
    assert strict.subscribe("worker", "$calls.echo", 5).outcome is Outcome.SUCCESS
