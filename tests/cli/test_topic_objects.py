"""`pubsub topic list`, `create` and `purge` on a cluster with keys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.keyed_cluster import Command, command, directory, done, failed, topic
from tests.faults.cluster import until

__all__ = ["command", "directory", "topic"]  # Fixtures.


def listed(command: Command, topic: str) -> dict[str, Any] | None:
    rows = json.loads(done(command("topic", "list", "--json")))
    return next((row for row in rows if row["topic"] == topic), None)


def put(command: Command, directory: Path, topic: str, number: int) -> None:
    message = directory / "message"
    message.write_text("x")
    for _ in range(number):
        done(command("client", "client", "put", topic, str(message)))


def test_a_created_topic_is_listed_with_its_settings(command: Command, topic: str) -> None:
    said = done(command("topic", "create", topic, "keep=7d"))
    assert said == f"{topic}: created, keep=7d drop=never\n"
    row = until(lambda: listed(command, topic), "it is listed")
    assert row == {
        "topic": topic, "servers": ["s1"], "records": 0, "bytes": 0, "subscribers": 0, "groups": 0,
        "keep": "7d", "drop": "never",
        "expire": "never",
    }  # fmt: skip
    table = done(command("topic", "list"))
    assert topic in table
    assert "7d" in table


def test_a_topic_that_exists_is_no_error_with_the_same_settings_and_one_with_others(
    command: Command, topic: str
) -> None:
    done(command("topic", "create", topic, "keep=7d"))
    assert "exists already with these settings" in done(command("topic", "create", topic, "keep=7d"))
    assert json.loads(done(command("topic", "create", topic, "keep=7d", "--json")))["new"] is False
    code, text = failed(command("topic", "create", topic))
    assert code == 15
    assert f"topic {topic} exists with keep=7d drop=never; pubsub topic set {topic} changes them" in text


@pytest.mark.parametrize("words", [("_mine",), ("new", "kep=7d"), ("new", "keep=7 years"), ("new", "7d")])
def test_a_creation_with_a_mistake_is_refused_on_one_line(command: Command, words: tuple[str, ...]) -> None:
    failed(command("topic", "create", *words))
    assert listed(command, "new") is None


def test_a_purge_prints_what_it_deletes(command: Command, directory: Path, topic: str) -> None:
    done(command("topic", "create", topic, "keep=ever"))
    put(command, directory, topic, 3)
    said = done(command("topic", "purge", topic, "--yes"))
    assert said == f"{topic}: 3 messages deleted, 0 unread\n"
    assert json.loads(done(command("topic", "purge", topic, "--yes", "--json"))) == {
        "topic": topic, "records": 0, "unread": 0
    }  # fmt: skip


def test_a_purge_that_is_not_confirmed_deletes_nothing_and_says_what_it_would(
    command: Command, directory: Path, topic: str
) -> None:
    done(command("client", "client", "subscribe", topic))
    put(command, directory, topic, 2)
    code, _, text = command("topic", "purge", topic, "--unread")
    assert code != 0
    assert (
        f"The purge deletes 2 messages of {topic}. Not acknowledged by every subscriber, and lost to the others: 2."
        in text
    )
    said = json.loads(done(command("topic", "purge", topic, "--unread", "--yes", "--json")))
    assert (said["records"], said["unread"]) == (2, 2)


def test_a_purge_of_an_unknown_topic_says_so(command: Command, topic: str) -> None:
    code, text = failed(command("topic", "purge", topic, "--yes"))
    assert code == 13
    assert f"topic {topic} does not exist" in text


def test_a_deletion_prints_what_it_deletes_and_the_topic_is_no_longer_listed(
    command: Command, directory: Path, topic: str
) -> None:
    done(command("topic", "create", topic, "keep=ever"))
    put(command, directory, topic, 3)
    assert done(command("topic", "delete", topic, "--yes")) == f"{topic}: deleted, with 3 messages and 0 subscribers\n"
    until(lambda: listed(command, topic) is None, "it is not listed")
    assert done(command("topic", "delete", topic, "--yes")) == f"{topic}: deleted\n"


def test_a_deletion_is_refused_with_subscribers_and_asks_with_force(
    command: Command, directory: Path, topic: str
) -> None:
    done(command("client", "client", "subscribe", topic))
    code, text = failed(command("topic", "delete", topic, "--yes"))
    assert code == 15
    assert f"topic {topic} has 1 subscriber, so it is not deleted" in text
    code, _, text = command("topic", "delete", topic, "--force")
    assert code != 0
    assert (
        f"Topic {topic} is deleted, with 0 messages. Messages that its 1 subscriber did not receive are lost." in text
    )
    said = json.loads(done(command("topic", "delete", topic, "--force", "--yes", "--json")))
    assert said == {"topic": topic, "records": 0, "subscribers": 1}


def test_a_subscriber_that_received_everything_is_not_told_of_lost_records(
    command: Command, directory: Path, topic: str
) -> None:
    done(command("client", "client", "subscribe", topic))
    put(command, directory, topic, 1)
    done(command("client", "client", "get", topic))
    assert "and 1 subscriber\n" in done(command("topic", "delete", topic, "--force", "--yes"))
    code, text = failed(command("client", "client", "get", topic))
    assert code == 11
    assert f"{topic}: an operator deleted the topic; no message is known that this client had not received" in text
    assert "lost" not in text
    put(command, directory, topic, 2)
    said = done(command("topic", "delete", topic, "--force", "--yes"))
    assert said == f"{topic}: deleted, with 2 messages and 1 subscriber\n"
    code, text = failed(command("client", "client", "get", topic))
    assert code == 11
    assert re.search(rf"{topic}: records (\w+)\.1 to \1\.2 are lost \(an operator deleted the topic", text)
    letters = json.loads(done(command("client", "client", "dead-letters", topic, "--json")))
    assert len(letters) == 1


def test_a_deletion_of_an_unknown_topic_says_so(command: Command, topic: str) -> None:
    code, text = failed(command("topic", "delete", topic, "--yes"))
    assert code == 13
    assert f"topic {topic} does not exist" in text
