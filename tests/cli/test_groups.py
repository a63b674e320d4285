"""`pubsub group …` on a cluster with keys: each command as typed, its JSON, its questions and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.client import Client
from tests.cli.keyed_cluster import Command, command, directory, done, failed, topic
from tests.client.silent_members import claims
from tests.faults.cluster import until

pytestmark = pytest.mark.timeout(180)

__all__ = ["command", "directory", "topic"]  # Fixtures.


@pytest.fixture
def operator(directory: Path) -> Iterator[Client]:
    with Client(
        "operator", proxies_file=directory / "proxies", key_file=directory / "client.key", directory=directory / "ops"
    ) as client:
        yield client


def make(command: Command, operator: Client, topic: str, *bodies: bytes, group: str = "billing") -> None:
    done(command("client", "client", "subscribe", topic, "--group", group))
    for body in bodies:
        operator.put(topic, body)


def reject(command: Command, topic: str, number: int) -> None:
    words = ["client", "client", "process", topic, "--group", "billing", "--count", str(number)]
    done(command(*words, "--", "sh", "-c", "exit 65"))
    until(lambda: len(letters(command, topic)) == number, "they are dead letters")


def letters(command: Command, topic: str) -> list[dict[str, object]]:
    return list(json.loads(done(command("group", "dead-letters", topic, "billing", "--json"))))


def test_groups_are_listed_and_shown(command: Command, operator: Client, topic: str) -> None:
    done(command("client", "client", "subscribe", topic, "--group", "billing", "--mode", "keyed", "--parts", "16",
                 "--on-lost", "redeliver", "--lost-seconds", "30", "--attempts", "3"))  # fmt: skip
    operator.put(topic, b"x")
    (row,) = json.loads(done(command("group", "list", topic, "--json")))
    facts = {
        name: row[name] for name in ("topic", "name", "mode", "parts", "on_lost", "lost_seconds", "attempts", "waiting")
    }
    assert facts == {
        "topic": topic, "name": "billing", "mode": "keyed", "parts": 16, "on_lost": "redeliver", "lost_seconds": 30.0,
        "attempts": 3, "waiting": 1,
    }  # fmt: skip
    assert "keyed, 16" in done(command("group", "list"))
    (listed,) = [one for one in json.loads(done(command("topic", "list", "--json"))) if one["topic"] == topic]
    assert (listed["subscribers"], listed["groups"]) == (0, 1)
    shown = done(command("group", "show", topic, "billing"))
    assert f"billing of {topic}: keyed in 16 parts, on_lost=redeliver, lost_seconds=30, 3 attempts (number " in shown
    assert "messages: 1 waiting, 0 offered, 0 claimed, 0 delayed\ndead letters: 0, 0 B\n" in shown
    assert json.loads(done(command("group", "show", topic, "billing", "--json")))["waiting"] == 1


def test_joining_and_leaving_are_reported(command: Command, topic: str) -> None:
    said = done(command("client", "client", "subscribe", topic, "--group", "billing"))
    assert said == f"client is a member of group billing of {topic}\n"
    joined = json.loads(done(command("client", "client", "subscribe", topic, "--group", "billing", "--json")))
    assert joined == {"client": "client", "subscribed": topic, "group": "billing"}
    assert done(command("client", "client", "leave", topic, "--group", "billing")) == (
        f"client has left group billing of {topic}\n"
    )
    code, text = failed(command("client", "client", "subscribe", topic, "--group", "billing", "--attempts", "9"))
    assert code == 40
    assert f"group billing of {topic} exists with other values" in text
    code, text = failed(command("client", "client", "subscribe", f"{topic}.*", "--group", "billing"))
    assert (code, f"{topic}.* is a pattern of topics, and a consumer group is of one topic" in text) == (2, True)
    code, text = failed(command("client", "client", "subscribe", topic, "--mode", "keyed"))
    assert (code, "--mode belongs to a consumer group: name it, too, by --group NAME" in text) == (2, True)
    code, text = failed(command("client", "client", "subscribe", topic, "--group", "billing", "--fresh"))
    assert (code, f"pubsub group end {topic} billing" in text) == (2, True)


def test_a_command_of_a_group_takes_its_messages(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic, b"a", b"b")
    words = ["client", "client", "process", topic, "--group", "billing", "--count", "2", "--json"]
    script = '[ "$PUBSUB_MESSAGE_GROUP $PUBSUB_MESSAGE_ATTEMPTS" = "billing 1" ]'
    said = json.loads(done(command(*words, "--", "sh", "-c", script)))
    assert said == {"client": "client", "topic": topic, "handled": 2}
    (row,) = json.loads(done(command("group", "list", topic, "--json")))
    assert (row["waiting"], row["claimed"], row["dead_letters"], row["in_doubt"]) == (0, 0, 0, 0)


def test_dead_letters_are_listed_redriven_and_dropped(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic, b"a", b"b", b"c")
    reject(command, topic, 3)
    first, second, _ = letters(command, topic)
    assert (first["kind"], first["reason"], first["attempts"]) == ("dead", "sh ended with 65", 1)
    table = done(command("group", "dead-letters", topic, "billing"))
    assert str(first["id"]) in table
    assert "sh ended with 65" in table
    one = str(first["id"])
    assert done(command("group", "redrive", topic, "billing", one)) == f"redriven 1 dead letter of billing of {topic}\n"
    code, _, text = command("group", "redrive", topic, "billing", str(second["id"]), "--drop")
    assert (code, f"1 dead letter of group billing of {topic} is deleted, with all contents." in text) == (1, True)
    said = done(command("group", "redrive", topic, "billing", str(second["id"]), "--drop", "--yes", "--json"))
    assert json.loads(said) == {"topic": topic, "group": "billing", "dropped": 1}
    assert done(command("group", "redrive", topic, "billing")) == f"redriven 1 dead letter of billing of {topic}\n"
    code, text = failed(command("group", "redrive", topic, "billing", "0123456789abcdef.7"))
    assert (code, "has no dead letter 0123456789abcdef.7" in text) == (13, True)
    assert failed(command("group", "redrive", topic, "billing", "seven"))[0] == 2


def test_a_silent_member_is_shown_and_released_after_a_question(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic, b"a", b"b")
    assert claims(operator, topic, "billing", "w1") == 2
    shown = done(command("group", "members", topic, "billing"))
    assert "w1" in shown
    assert "silent, " in shown
    (member,) = json.loads(done(command("group", "members", topic, "billing", "--json")))
    assert (member["client"], member["heard"], member["in_doubt"]) == ("w1", False, 2)
    assert "in doubt: 2 messages at 1 silent member, for " in done(command("group", "show", topic, "billing"))
    code, _, text = command("group", "release", topic, "billing", "--member", "w1")
    assert code == 1
    assert "2 messages that w1 has claimed go to other members of group billing" in text
    code, text = failed(command("group", "end", topic, "billing"))
    assert (code, "2 records are in doubt at w1" in text) == (44, True)
    code, text = failed(command("group", "release", topic, "billing", "--member", "w2"))
    assert (code, "there are: w1" in text) == (13, True)
    assert failed(command("group", "release", topic, "billing", "--member", "w1", "--store", "x"))[0] == 2
    said = done(command("group", "release", topic, "billing", "--member", "w1", "--lost-disk", "--yes", "--json"))
    assert json.loads(said) == {
        "topic": topic, "group": "billing", "member": "w1", "store": member["store"], "released": 2
    }  # fmt: skip
    script = '[ "$PUBSUB_MESSAGE_DOUBTFUL" = 1 ]'
    words = ["client", "client", "process", topic, "--group", "billing", "--count", "2"]
    done(command(*words, "--", "sh", "-c", script))
    assert letters(command, topic) == []


def test_values_are_changed_and_giving_up_sooner_asks(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic)
    assert done(command("group", "change", topic, "billing", "--attempts", "9")) == (
        f"billing of {topic}: shared, on_lost=wait, lost_seconds=600, 9 attempts\n"
    )
    assert "on_lost=wait, lost_seconds=90, " in done(
        command("group", "change", topic, "billing", "--lost-seconds", "90")
    )
    words = ["group", "change", topic, "billing", "--on-lost", "redeliver", "--lost-seconds", "60"]
    code, _, text = command(*words)
    assert (code, "They are marked as doubtful, and may happen twice." in text) == (1, True)
    assert json.loads(done(command(*words, "--yes", "--json")))["on_lost"] == "redeliver"
    assert "keyed in 8 parts" in done(command("group", "change", topic, "billing", "--mode", "keyed", "--parts", "8"))
    code, text = failed(command("group", "change", topic, "billing"))
    assert (code, "name a value to change" in text) == (2, True)


def test_a_group_ends_after_its_name_was_typed(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic, b"a")
    code, _, text = command("group", "end", topic, "billing")
    assert code == 1
    assert f"Group billing of {topic} ends. Given up: 1 waiting message and 0 dead letters." in text
    assert done(command("group", "end", topic, "billing", "--yes")) == f"group billing of {topic} has ended\n"
    code, text = failed(command("group", "show", topic, "billing"))
    assert (code, "it has none" in text) == (13, True)


def test_only_a_suspended_group_is_resumed(command: Command, operator: Client, topic: str) -> None:
    make(command, operator, topic)
    code, text = failed(command("group", "resume", topic, "billing", "--redeliver", "--yes"))
    assert (code, f"group billing of {topic} is not suspended" in text) == (15, True)
    for words in ([], ["--redeliver", "--skip"]):
        assert failed(command("group", "resume", topic, "billing", *words))[0] == 2


@pytest.mark.parametrize("words", [("list",), ("show", "billing"), ("members", "billing"), ("dead-letters", "billing")])
def test_a_topic_or_a_group_that_does_not_exist_is_one_line(
    command: Command, operator: Client, topic: str, words: tuple[str, ...]
) -> None:
    name, *rest = words
    code, text = failed(command("group", name, topic, *rest))
    assert (code, f"topic {topic} does not exist" in text) == (13, True)
    if rest:
        operator.put(topic, b"x")
        code, text = failed(command("group", name, topic, "biling"))
        assert (code, f"topic {topic} has no group biling" in text) == (13, True)
