"""A message's key and headers through the gateway, in every way in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.cluster import until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import CLIENT, LINES, Gateway
from tests.gateway.test_webhooks import hook

MESSAGES = {"content_type": "application/vnd.pubsub.messages+x-ndjson"}


def metadata(message: dict[str, Any]) -> dict[str, Any]:
    """What stands beside a message's body."""
    return {name: value for name, value in message.items() if name.startswith(("key", "headers"))}


def test_the_headers_of_a_request_become_the_key_and_headers_of_its_message(gateway: Gateway) -> None:
    gateway.subscribe("beside", "s")
    gateway.put("beside", b"one", pubsub_key="k%FF", pubsub_header_trace="a b", pubsub_header_raw="%00%FF")
    gateway.put("beside", b"none")
    one, none = gateway.take("beside", "s", 2)
    assert metadata(one) == {"key_base64": "a/8=", "headers": {"trace": "a b"}, "headers_base64": {"raw": "AP8="}}
    assert metadata(none) == {}


def test_lines_have_the_requests_key_and_headers_each(gateway: Gateway) -> None:
    gateway.subscribe("beside2", "s")
    answer = gateway.ask("POST", "/topics/beside2/messages", b"1\n2\n", **LINES, pubsub_key="k", pubsub_header_a="b")
    assert answer.json()["count"] == 2
    assert [metadata(one) for one in gateway.take("beside2", "s", 2)] == [{"key": "k", "headers": {"a": "b"}}] * 2


def test_polled_messages_can_be_put_again_line_by_line(gateway: Gateway) -> None:
    wanted = [
        {"body": "one", "key": "k", "headers": {"a": "1", "Case": "kept"}},
        {"body": "two"},
        {"body_base64": "/w==", "headers": {"b": ""}, "headers_base64": {"c": "/w=="}},
    ]
    lines = "\n".join(map(json.dumps, wanted)).encode()
    for topic in ("beside3", "beside4"):
        gateway.subscribe(topic, "s")
        answer = gateway.ask("POST", f"/topics/{topic}/messages", lines, **MESSAGES)
        assert (answer.status_code, answer.json()["count"]) == (201, 3), answer.text
        found = gateway.take(topic, "s", 3)
        kept = [
            {name: value for name, value in one.items() if name.startswith("body")} | metadata(one) for one in found
        ]
        assert kept == wanted
        lines = "\n".join(map(json.dumps, kept)).encode()


def test_a_large_body_of_messages_is_read_completely(gateway: Gateway) -> None:
    gateway.subscribe("beside5", "s")
    lines = b"\n".join(b'{"body": "%d%s", "key": "%d"}' % (number, b"x" * 1_000, number) for number in range(400))
    assert gateway.ask("POST", "/topics/beside5/messages", lines, **MESSAGES).json()["count"] == 400
    assert [one["key"] for one in gateway.take("beside5", "s", 400)] == [str(number) for number in range(400)]


@pytest.mark.parametrize("headers", [
    {f"pubsub_header_{number}": "x" for number in range(17)},
    {"pubsub_header_a": "x" * 9_000},
    {"pubsub_header_a": "%x"},
    {"pubsub_kye": "a typing error"},
    MESSAGES | {"pubsub_key": "k"},
])  # fmt: skip
def test_invalid_headers_are_refused_and_nothing_is_put(gateway: Gateway, headers: dict[str, str]) -> None:
    gateway.subscribe("beside6", "s")
    answer = gateway.ask("POST", "/topics/beside6/messages", b'{"body": "x"}', **headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:pubsub:problem:bad-request")
    assert gateway.poll("beside6", "s", wait=0)["messages"] == []


def test_one_bad_line_keeps_the_others_from_being_put(gateway: Gateway) -> None:
    gateway.subscribe("beside7", "s")
    answer = gateway.ask("POST", "/topics/beside7/messages", b'{"body": "x"}\n{"body": 1}\n', **MESSAGES)
    assert (answer.status_code, answer.json()["detail"]) == (400, "Line 2: body must be text.")
    assert gateway.poll("beside7", "s", wait=0)["messages"] == []


def test_headers_that_would_be_more_than_a_body_may_be_are_refused(gateway: Gateway) -> None:
    lines = b"x\n" * 20_000  # Each of them with 7,000 bytes of headers: 140 MB from 40 kB.
    answer = gateway.ask("POST", "/topics/beside8/messages", lines, **LINES, pubsub_header_a="x" * 7_000)
    assert answer.status_code == 413
    assert "with keys and headers" in answer.json()["detail"]


def test_another_key_or_header_under_an_idempotency_key_is_another_request(gateway: Gateway) -> None:
    sent = {"idempotency_key": "beside-1", "pubsub_key": "k", "pubsub_header_a": "1"}
    first = gateway.put("beside9", b"x", **sent)
    assert gateway.put("beside9", b"x", **sent) == first
    for other in ({"pubsub_key": "l"}, {"pubsub_header_a": "2"}, {"pubsub_header_b": "1"}):
        answer = gateway.ask("POST", "/topics/beside9/messages", b"x", **(sent | other))
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:pubsub:problem:key-reused")


def test_an_event_of_a_stream_has_key_and_headers(gateway: Gateway) -> None:
    gateway.subscribe("beside10", "s")
    gateway.put("beside10", b"one", pubsub_key="k", pubsub_header_a="1")
    with gateway.events("beside10", "s") as events:
        assert metadata(json.loads(next(events)["data"])) == {"key": "k", "headers": {"a": "1"}}


def test_a_webhook_has_key_and_headers_and_its_dead_letters_keep_them(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 410 if body == b"last" else 204) as receiver:
        hook(gateway, "beside11", receiver.url)
        gateway.put("beside11", b"one", pubsub_key="k%FF", pubsub_header_trace_id="a%0D%0Aset-cookie: b")
        gateway.put("beside11", b"big", pubsub_key="y" * 7_000, pubsub_header_big="x" * 7_000)
        until(lambda: len(receiver.taken) == 2, "both arrive")
        found = {body: {name: value for name, value in headers.items() if name.startswith("pubsub-")}
                 for headers, body in receiver.taken}  # fmt: skip
        assert found[b"one"] == {
            "pubsub-topic": "beside11",
            "pubsub-key": "k%FF",
            "pubsub-header-trace-id": "a%0D%0Aset-cookie: b",
        }
        assert found[b"big"] == {"pubsub-topic": "beside11", "pubsub-key": "y" * 7_000, "pubsub-omitted": "headers"}
        gateway.put("beside11", b"last", pubsub_key="k", pubsub_header_a="1")
        path = "/topics/beside11/webhooks/w/dead-letters"
        until(lambda: gateway.ask("GET", path).json()["dead_letters"], "it ends")
        (letter,) = gateway.ask("GET", path).json()["dead_letters"]
        assert metadata(letter) == {"key": "k", "headers": {"a": "1"}}


def test_headers_of_http_keep_their_case_where_it_is_escaped(gateway: Gateway) -> None:
    gateway.subscribe("beside12", "s")
    headers = [("Pubsub-Header-Trace", "1"), ("Pubsub-Header-%54race", "2")]
    assert CLIENT.post(f"{gateway.url}/topics/beside12/messages", content=b"x", headers=headers).status_code == 201
    assert metadata(gateway.take("beside12", "s", 1)[0]) == {"headers": {"trace": "1", "Trace": "2"}}
