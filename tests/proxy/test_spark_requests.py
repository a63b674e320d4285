"""Requests of range readers and sinks are routed by topic like puts and gets; only a read makes no topic."""

from __future__ import annotations

import pytest

from pubsub.protocol import Message, Publish, Read, Stage, Subscribe
from tests.proxy.stage import Stage as Proxy

SINK = "0123456789abcdef"
READ = Read("spark", "t", None, name="archive")
MAKING = (
    Stage("out", "t", 0, SINK, "0.a", 0, 1, 0, body=b"x"),
    Publish("out", "t", 0, SINK, {"0.a": 1}),
    Publish("out", "t", 0, SINK, {}),
    Subscribe("spark", "t", 1, 1, name="archive", start="earliest"),
)


@pytest.mark.parametrize("message", [READ, *MAKING], ids=lambda m: type(m).__name__)
def test_a_request_of_spark_goes_to_the_holder_of_its_topic(message: Message) -> None:
    proxy = Proxy()
    proxy.announce("s1", {"t": "x"})
    proxy.announce("s2", {"u": "y"})
    assert proxy.outcome(message) == "-> s1"


@pytest.mark.parametrize("message", MAKING, ids=lambda m: type(m).__name__)
def test_a_request_of_spark_for_a_new_topic_gets_an_assignment(message: Message) -> None:
    proxy = Proxy()
    proxy.announce("s1", {"u": "y"})
    proxy.announce("s2")
    assert proxy.outcome(message) == "-> s2"
    assert proxy.outcome(message) == "-> s2"


def test_a_read_makes_no_topic() -> None:
    proxy = Proxy()
    proxy.announce("s1")
    assert proxy.outcome(READ) == "unknown no_server_holds_this_topic"
    assert not proxy.core.table.assignments.tentative


def test_a_request_of_spark_for_a_contested_topic_goes_to_the_log_it_names() -> None:
    proxy = Proxy()
    proxy.announce("s1", {"t": "x"})
    proxy.announce("s2", {"t": "y"})
    other = Publish("out", "t", 0, SINK, {}, log=b"y".hex().rjust(16, "0"))
    assert proxy.outcome(other) == "-> s2"
    assert proxy.outcome(Publish("out", "t", 0, SINK, {})) == "-> s1"
