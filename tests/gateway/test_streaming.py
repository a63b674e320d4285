"""Streams of server-sent events: order, resuming, heartbeats, taking over.

The rule is docs/explanation/gateway.md, H8.
"""

from __future__ import annotations

import json
import socket
from itertools import islice
from typing import Any

import pytest

from pubsub.gateway.mailbox import Mail
from pubsub.gateway.problems import Problem
from pubsub.gateway.streaming import event, last_event_id
from tests.faults.cluster import until
from tests.gateway.serving import Gateway, parsed


def bodies(events: list[dict[str, Any]]) -> list[str]:
    return [json.loads(one["data"])["body"] for one in events]


def put(gateway: Gateway, topic: str, count: int) -> None:
    gateway.subscribe(topic, "s")
    for number in range(count):
        gateway.put(topic, b"%d" % number)


def test_events_come_in_order_and_new_ones_when_they_are_put(gateway: Gateway) -> None:
    put(gateway, "stream", 3)
    with gateway.events("stream", "s") as events:
        assert bodies(list(islice(events, 3))) == ["0", "1", "2"]
        gateway.put("stream", b"new")
        assert bodies([next(events)]) == ["new"]


def test_a_returning_reader_continues_after_the_last_event_it_saw(gateway: Gateway) -> None:
    put(gateway, "resumed", 5)
    with gateway.events("resumed", "s") as events:
        seen = list(islice(events, 2))
    with gateway.events("resumed", "s", last_event_id=seen[-1]["id"]) as events:
        rest = list(islice(events, 3))
    assert bodies(seen + rest) == ["0", "1", "2", "3", "4"]
    with gateway.events("resumed", "s", last_event_id=rest[-1]["id"]) as events:
        gateway.put("resumed", b"5")
        assert bodies([next(events)]) == ["5"]


def test_unconfirmed_events_of_a_stream_are_there_for_a_poll(gateway: Gateway) -> None:
    put(gateway, "switched", 2)
    with gateway.events("switched", "s") as events:
        assert len(list(islice(events, 2))) == 2
    polled = "/topics/switched/subscribers/s/messages?max=1&wait=0"
    until(lambda: gateway.ask("GET", polled).status_code != 409, "the gateway has seen that the stream ended")
    assert len(gateway.take("switched", "s", 2)) == 2


def test_a_returning_stream_takes_over_from_its_own_broken_connection(gateway: Gateway) -> None:
    put(gateway, "over", 1)
    with gateway.events("over", "s") as first:
        seen = next(first)
        with gateway.events("over", "s", last_event_id=seen["id"]) as second:
            gateway.put("over", b"next")
            assert bodies([next(second)]) == ["next"]
            assert list(first) == []


def test_a_stream_takes_over_from_a_stream_that_does_not_read(gateway: Gateway) -> None:
    gateway.subscribe("stalled", "s")
    for _ in range(3):
        gateway.put("stalled", b"x" * (8 << 20))  # More than a connection holds.
    held = "/topics/stalled/subscribers/s"
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as peer:
        peer.sendall(b"GET /topics/stalled/stream?subscriber=s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        until(lambda: gateway.ask("GET", held).json()["taken"] > 0, "its reader has something to take")
        with gateway.events("stalled", "s", last_event_id="0") as events:
            assert [len(body) for body in bodies(list(islice(events, 3)))] == [8 << 20] * 3
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as peer:
        head = b"GET /topics/stalled/stream?subscriber=s HTTP/1.1\r\nhost: 127.0.0.1\r\nlast-event-id: 0\r\n\r\n"
        peer.sendall(head)
        assert peer.recv(12) == b"HTTP/1.1 200"
        assert gateway.ask("DELETE", held).status_code == 204


def test_another_stream_is_refused_while_one_reads(gateway: Gateway) -> None:
    put(gateway, "taken", 1)
    with gateway.events("taken", "s") as first:
        next(first)
        answer = gateway.ask("GET", "/topics/taken/stream?subscriber=s")
        assert answer.status_code == 409


def test_a_stream_without_a_known_subscriber_is_not_found(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/topics/taken/stream?subscriber=nobody").status_code == 404
    assert gateway.ask("GET", "/topics/taken/stream").status_code == 404


def test_an_unknown_event_cannot_be_the_last_one(gateway: Gateway) -> None:
    put(gateway, "bad", 1)
    for last in ("x", "99", "-1"):
        answer = gateway.ask("GET", "/topics/bad/stream?subscriber=s", last_event_id=last)
        assert answer.status_code == 400, last


@pytest.mark.parametrize(("header", "number"), [(None, 0), ("", 0), ("7", 7)])
def test_the_last_event_is_a_number(header: str | None, number: int) -> None:
    assert last_event_id(header) == number


@pytest.mark.parametrize("header", ["seven", "1_0", "+1", "-1", " 1", "\u0661", "9" * 19])
def test_an_invalid_last_event_id_is_refused(header: str) -> None:
    with pytest.raises(Problem):
        last_event_id(header)


def test_an_event_is_read_by_the_standard() -> None:
    mail = Mail(3, "log.7", "c/ab", 9, 5, b"k", b'{"a": "\\n"}\n', "", 0, 0.0)
    (found,) = parsed(iter(event(mail).decode().split("\n")))
    assert found["id"] == "3"
    assert json.loads(found["data"])["body"] == '{"a": "\\n"}\n'


def test_a_loss_is_a_separate_event() -> None:
    mail = Mail(3, "a.1..a.2", "", 0, 0, b"", None, "the disk", 0, 0.0)
    (found,) = parsed(iter(event(mail).decode().split("\n")))
    assert found["event"] == "lost"
    assert json.loads(found["data"])["lost"] == "the disk"
