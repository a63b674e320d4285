"""Messages are shown, and no subscriber's position moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.gateway.limits import PREVIEW_BODY_BYTES
from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow


def test_a_peeked_message_is_still_received(gateway: Gateway) -> None:
    gateway.subscribe("peeked", "s")
    for number in range(5):
        gateway.put("peeked", str(number).encode())
    newest = gateway.ask("GET", "/topics/peeked/messages?max=2").json()
    assert (newest["held"], [one["body"] for one in newest["messages"]], newest["next"]) == (5, ["3", "4"], None)
    oldest = gateway.ask("GET", "/topics/peeked/messages?max=3&after=-1").json()
    assert [one["body"] for one in oldest["messages"]] == ["0", "1", "2"]
    rest = gateway.ask("GET", f"/topics/peeked/messages?after={oldest['next']}").json()
    assert [one["body"] for one in rest["messages"]] == ["3", "4"]
    taken = gateway.take("peeked", "s", 5)
    assert [(one["id"], one["body"]) for one in taken] == [
        (one["id"], one["body"]) for one in oldest["messages"] + rest["messages"]
    ]


def test_a_large_body_is_cut_between_characters(gateway: Gateway) -> None:
    gateway.put("cut", b"x" + "é".encode() * PREVIEW_BODY_BYTES)
    gateway.put("cut", b"\xff")
    large, other = gateway.ask("GET", "/topics/cut/messages").json()["messages"]
    assert (large["cut"], large["bytes"]) == (["body"], 2 * PREVIEW_BODY_BYTES + 1)
    assert large["body"] == "x" + "é" * ((PREVIEW_BODY_BYTES - 1) // 2)
    assert other["body_base64"] == "/w=="


def test_a_look_at_large_messages_shows_the_newest_and_stays_small(gateway: Gateway) -> None:
    for number in range(6):
        gateway.put("large", b"%d" % number + b"x" * (400 * 1024))
    newest = gateway.ask("GET", "/topics/large/messages?max=6")
    assert [one["body"][0] for one in newest.json()["messages"]][-1] == "5"
    assert (newest.json()["next"], len(newest.content) < 10 * PREVIEW_BODY_BYTES) == (None, True)
    seen, after = [], "-1"
    while after is not None:
        found = gateway.ask("GET", f"/topics/large/messages?after={after}").json()
        seen += [one["body"][0] for one in found["messages"]]
        after = found["next"]
    assert "".join(seen) == "012345"


def test_a_message_of_the_largest_size_is_looked_at(gateway: Gateway) -> None:
    gateway.put("largest", b"x" * (15 * 1024 * 1024), pubsub_key="k" * 5000, pubsub_header_trace="t")
    found = gateway.ask("GET", "/topics/largest/messages")
    (one,) = found.json()["messages"]
    assert (one["bytes"], one["cut"], one["headers"]) == (15 * 1024 * 1024, ["key", "body"], {"trace": "t"})
    assert len(found.content) < 2 * PREVIEW_BODY_BYTES


def test_an_impossible_look_names_the_reason(gateway: Gateway) -> None:
    gateway.put("there", b"x")
    assert gateway.ask("GET", "/topics/nobodys-topic/messages").status_code == 404
    assert gateway.ask("GET", "/topics/there/messages?after=x").status_code == 400
    assert gateway.ask("GET", "/topics/there/messages?after=0123456789abcdef.7").status_code == 409


def test_a_user_without_the_right_to_receive_cannot_look(cluster: Cluster, tmp_path: Path) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"viewer th_{digest(token)} put=* get=mine status\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=token) as gateway:
        assert gateway.ask("GET", "/topics/there/messages").status_code == 403
