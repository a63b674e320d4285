"""`pubsub client ID subscribe --start` and `seek`, `pubsub topic read` and `times`, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.client import Client

_numbers = count(1)
Lines = Callable[..., list[str]]
LINES = [f"line {number}" for number in range(9)]


@pytest.fixture
def lines(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Lines:
    """Runs `pubsub ARGUMENTS` and returns the lines that it printed; the last argument may be its exit code."""
    monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", service)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))

    def run(*arguments: str, code: int = 0) -> list[str]:
        capfd.readouterr()
        assert main(list(arguments)) == code
        captured = capfd.readouterr()
        return (captured.err if code else captured.out).splitlines()

    return run


@pytest.fixture
def topic(service: str, tmp_path: Path) -> str:
    name = f"back{next(_numbers)}"
    with Client("shop", proxies=[service], directory=tmp_path / "shop") as shop:
        shop.configure(name, keep="ever")
        shop.put_many(name, [line.encode() for line in LINES])
    return name


def test_a_client_subscribes_from_a_start_and_seeks(lines: Lines, topic: str) -> None:
    lines("client", "billing", "subscribe", topic, "--start", "last:4")
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES[-4:]
    lines("client", "billing", "subscribe", topic, "--start", "earliest")
    lines("client", "billing", "get", topic, "--wait", "0", code=3)
    assert lines("client", "billing", "seek", topic, "--start", "earliest") == [
        f"billing receives {topic} from earliest on (replay 1)"
    ]
    found = [json.loads(line) for line in lines("client", "billing", "get", topic, "--count", "9", "--json")]
    assert [(one["body"], one["replay"]) for one in found] == [(line, 1) for line in LINES]
    (done,) = lines("client", "billing", "seek", topic, "--start", found[6]["id"], "--json")
    assert json.loads(done) == {"client": "billing", "topic": topic, "start": found[6]["id"], "replay": 2}
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES[6:]
    lines("client", "billing", "seek", topic, "--start", "-1h")
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES
    lines("client", "billing", "subscribe", topic, "--fresh", "--start", "last:1")
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES[-1:]


def test_a_seek_is_refused_in_one_line(lines: Lines, topic: str, service: str) -> None:
    lines("client", "billing", "seek", topic, "--start", "earliest", code=20)
    lines("client", "billing", "subscribe", topic, "--start", "earliest")
    (said,) = lines("client", "billing", "seek", topic, "--start", "1700000000", code=2)
    assert "a bare number may be" in said
    (said,) = lines("client", "billing", "seek", topic, "--start", "2026-11-01T00:00", code=2)
    assert "no time zone; write 2026-11-01T00:00Z for UTC" in said
    (said,) = lines("client", "billing", "seek", topic, "--start", "2026-11-01", code=2)
    assert "no time zone; write 2026-11-01T00:00Z for UTC" in said
    (said,) = lines("client", "billing", "seek", topic, "--start", "9999-01-01T00:00Z", code=2)
    assert "lies in the future" in said
    (said,) = lines("client", "billing", "seek", topic, "--start", "last:10001", code=2)
    assert "N is a number from 1 to 10,000" in said
    (said,) = lines("client", "billing", "seek", "other", "--start", "earliest", code=6)
    assert "subscribe first" in said
    (said,) = lines("client", "billing", "seek", topic, "--start", "00000000000000aa.4", code=36)
    assert "name another start" in said
    with Client("billing", proxies=[service]):
        (said,) = lines("client", "billing", "seek", topic, "--start", "earliest", code=9)
    assert "in use by" in said
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES


def test_a_topic_is_read_and_nothing_is_acknowledged(lines: Lines, topic: str) -> None:
    lines("client", "billing", "subscribe", topic, "--start", "earliest")
    assert lines("topic", "read", topic) == LINES
    assert lines("topic", "read", topic, "--max", "2") == LINES[:2]
    assert lines("topic", "read", topic, "--start", "last:3") == LINES[-3:]
    assert lines("topic", "read", topic, "--start", "-1h", "--stop", "now") == LINES
    assert lines("topic", "read", topic, "--stop", "-1h") == []
    found = [json.loads(line) for line in lines("topic", "read", topic, "--json")]
    assert [one["body"] for one in found] == LINES
    assert {"id", "topic", "publisher", "counter", "stamp"} < found[0].keys()
    assert lines("topic", "read", topic, "--start", found[2]["id"], "--stop", found[4]["id"]) == LINES[2:5]
    assert lines("client", "billing", "get", topic, "--count", "9", "--wait", "0.2") == LINES


def test_the_times_of_a_topic_are_printed(lines: Lines, topic: str) -> None:
    (text,) = lines("topic", "times", topic)
    assert text.startswith(f"{topic}: {len(LINES)} records, ")
    (line,) = lines("topic", "times", topic, "--json")
    facts = json.loads(line)
    assert (facts["topic"], facts["records"], facts["exact"]) == (topic, len(LINES), True)
    assert facts["oldest"].endswith("Z")
    assert lines("topic", "read", topic, "--start", facts["first"]) == LINES
    assert lines("topic", "read", topic, "--start", facts["oldest"]) == LINES


def test_a_read_is_refused_in_one_line(lines: Lines, topic: str) -> None:
    for command in ("read", "times"):
        (said,) = lines("topic", command, "none", code=13)
        assert "no server holds it" in said
        (said,) = lines("topic", command, "$calls.echo", code=2)
        assert "belongs to a service" in said
    (said,) = lines("topic", "read", topic, "--stop", "earliest", code=2)
    assert "--stop is latest, a time or the last message's position" in said
    (said,) = lines("topic", "read", topic, "--start", "00000000000000aa.4", code=36)
    assert "the oldest one is" in said
