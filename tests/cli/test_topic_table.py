"""`pubsub topic table` on a cluster with keys."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.cli.keyed_cluster import Command, command, directory, done, failed, topic

__all__ = ["command", "directory", "topic"]  # Fixtures.


def put(command: Command, place: Path, topic: str, key: str, body: bytes) -> None:
    message = place / "message"
    message.write_bytes(body)
    done(command("client", "client", "put", topic, str(message), "--message-key", key))


def test_a_table_is_printed_in_the_order_of_its_keys(command: Command, directory: Path, topic: str) -> None:
    for key, body in (("b", b"1"), ("a", b"1"), ("b", b"\xff"), ("gone", b"1"), ("gone", b"")):
        put(command, directory, topic, key, body)
    values = [json.loads(line) for line in done(command("topic", "table", topic, "--json")).splitlines()]
    first = values[0].copy()
    assert abs(values[0].pop("stamp") / 1e6 - time.time()) < 600
    assert values[0] == {"key": "a", "body": "1"}
    assert values[1] == {"key": "b", "stamp": values[1]["stamp"], "body_base64": "/w=="}
    assert done(command("topic", "table", topic, "a")) == "1\n"
    assert json.loads(done(command("topic", "table", topic, "a", "--json"))) == first
    code, text = failed(command("topic", "table", topic, "gone"))
    assert (code, f"pubsub topic table {topic} lists the keys" in text) == (13, True)


def test_a_topic_without_a_table_is_refused_in_one_line(command: Command) -> None:
    code, text = failed(command("topic", "table", "nowhere"))
    assert (code, "no server holds it" in text) == (13, True)
    code, text = failed(command("topic", "table", "$calls.tax"))
    assert (code, "belongs to a service" in text) == (2, True)
