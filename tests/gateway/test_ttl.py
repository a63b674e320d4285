"""Messages with a time to live through the gateway and to a webhook."""

from __future__ import annotations

import pytest

from pubsub.client.batch_contents import BatchContents
from pubsub.gateway.problems import Problem
from pubsub.gateway.ttl import TimeToLive, read_ttl
from pubsub.protocol import decode_headers, encode_headers
from pubsub.protocol.time_to_live import TTL
from tests.faults.cluster import until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import LINES, Gateway
from tests.gateway.test_webhooks import hook


@pytest.mark.parametrize(("text", "error"), [("soon", "cannot be read"), ("0", "Ttl is between"), ("nan", "Ttl is")])
def test_a_bad_time_to_live_is_refused_and_nothing_is_put(text: str, error: str) -> None:
    with pytest.raises(Problem, match=error):
        read_ttl({"ttl": text}).added(BatchContents([b"x"]))


def test_the_time_to_live_joins_the_headers_of_each_message() -> None:
    assert read_ttl({}) == TimeToLive(None, "")
    contents = BatchContents([b"1", b"2"], (), [encode_headers({"a": b"b"}), b""])
    found = read_ttl({"ttl": "30"}).added(contents)
    assert list(map(decode_headers, found.headers)) == [{"a": b"b", TTL: b"30"}, {TTL: b"30"}]
    with pytest.raises(Problem, match="give only one"):
        read_ttl({"ttl": "30"}).added(found)


def test_an_expired_message_is_passed_over_and_a_repeat_is_recognised(gateway: Gateway) -> None:
    gateway.subscribe("expires", "s")
    key = {"idempotency_key": "t1"}
    first = gateway.ask("POST", "/topics/expires/messages?ttl=0.001", b"1\n2\n", **LINES, **key)
    again = gateway.ask("POST", "/topics/expires/messages?ttl=0.001", b"1\n2\n", **LINES, **key)
    other = gateway.ask("POST", "/topics/expires/messages?ttl=60", b"1\n2\n", **LINES, **key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    gateway.put("expires", b"new")
    assert [message["body"] for message in gateway.take("expires", "s", 1)] == ["new"]
    bad = gateway.ask("POST", "/topics/expires/messages?ttl=soon", b"x")
    assert (bad.status_code, bad.json()["detail"].endswith("nothing was put.")) == (400, True)


def test_a_webhook_passes_over_a_message_that_expired_between_two_deliveries(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 500) as receiver:
        hook(gateway, "expired-hook", receiver.url)
        assert gateway.ask("POST", "/topics/expired-hook/messages?ttl=3", b"old").status_code == 201
        gateway.put("expired-hook", b"new")
        until(lambda: receiver.requests, "it is tried")
        receiver.answer = lambda headers, body: 200
        # The next attempt follows after five seconds, which is later than the time to live.
        until(lambda: receiver.taken, "the next one arrives")
        assert receiver.bodies() == [b"new"]
