"""Topics as tables over HTTP (docs/how-to/keep-the-latest.md)."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.gateway import problems
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow


def table(gateway: Gateway, topic: str, place: str = "", status: int = 200) -> Any:
    answer = gateway.ask("GET", f"/topics/{topic}/table{place}")
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_table_has_the_last_message_of_each_key_by_page(gateway: Gateway) -> None:
    topic = "prices"
    assert gateway.ask("PUT", f"/topics/{topic}/settings", {"keep": "latest"}).status_code == 200
    for key, body in (("b", b"1"), ("a", b"1"), ("%FF", b"\xfe"), ("b", b"2"), ("gone", b"1"), ("gone", b"")):
        gateway.put(topic, body, pubsub_key=key)
    gateway.put(topic, b"without a key")
    values = [{"key": "a", "body": "1"}, {"key": "b", "body": "2"}, {"key_base64": "/w==", "body_base64": "/g=="}]
    assert table(gateway, topic) == {"topic": topic, "values": values, "next": None}
    assert table(gateway, topic, "?max=1") == {"topic": topic, "values": values[:1], "next": "a"}
    assert table(gateway, topic, "?max=2&after=a") == {"topic": topic, "values": values[1:], "next": None}
    assert table(gateway, topic, "/b") == values[1]
    assert table(gateway, topic, "/%FF") == values[2]
    gone = table(gateway, topic, "/gone", 404)
    assert gone["type"] == f"{problems.PREFIX}not-found"
    assert f"GET /topics/{topic}/table" in gone["detail"]
    assert table(gateway, topic, "?after=%25zz")["values"] == values, "it sorts before all keys"
    assert table(gateway, topic, "/%zz", 400)["type"] == f"{problems.PREFIX}bad-request"
    assert table(gateway, "none", "", 404)["type"] == f"{problems.PREFIX}not-found"
