"""Delayed puts through the gateway: the query of a put names the delay."""

from __future__ import annotations

import time

import pytest

from pubsub.gateway.delays import Delay, read_delay
from pubsub.gateway.problems import Problem
from tests.gateway.serving import LINES, Gateway


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"delay": "soon"}, "The query cannot be read"),
        ({"delay": "-1"}, "Delay is between"),
        ({"delay": "nan"}, "Delay is between"),
        ({"delay": "1", "deliver_at": "2030-01-01T00:00:00Z"}, "give only one"),
        ({"deliver_at": "2030-01-01T00:00:00"}, "time zone"),
        ({"deliver_at": "today"}, "The query cannot be read"),
    ],
)
def test_a_bad_delay_is_refused_and_nothing_is_put(query: dict[str, str], text: str) -> None:
    with pytest.raises(Problem, match=text):
        read_delay(query, 1_893_000_000.0)


def test_a_query_without_a_delay_has_none() -> None:
    assert read_delay({"max": "1"}, 0.0) == Delay(0, "")


def test_delayed_messages_come_later_and_a_repeat_is_recognised(gateway: Gateway) -> None:
    gateway.subscribe("later", "s")
    begun = time.time()
    key = {"idempotency_key": "k1"}
    first = gateway.ask("POST", "/topics/later/messages?delay=1", b"1\n2\n", **LINES, **key)
    again = gateway.ask("POST", "/topics/later/messages?delay=1", b"1\n2\n", **LINES, **key)
    other = gateway.ask("POST", "/topics/later/messages?delay=2", b"1\n2\n", **LINES, **key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.json()["ids"] == first.json()["ids"]
    gateway.put("later", b"at once")
    found = gateway.take("later", "s", 3)
    assert [message["body"] for message in found] == ["at once", "1", "2"]
    assert time.time() >= begun + 1
    assert {message["publisher"] for message in found} == {first.json()["publisher"]}
    bad = gateway.ask("POST", "/topics/later/messages?delay=soon", b"x")
    assert (bad.status_code, bad.json()["detail"].endswith("nothing was put.")) == (400, True)
