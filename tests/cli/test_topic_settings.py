"""`pubsub topic set` and `pubsub topic show` on a cluster with keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import topic_settings
from pubsub.cli.authorizing import authorize_line
from pubsub.cli.key_files import make
from pubsub.client.topic_settings import TopicSettings
from pubsub.security.authorized import parse_name
from tests.cli.keyed_cluster import Command, command, directory, done, failed, topic
from tests.faults.cluster import until

__all__ = ["command", "directory", "topic"]  # Fixtures.


def shown(command: Command, topic: str) -> dict[str, Any]:
    return dict(json.loads(done(command("topic", "show", topic, "--json"))))


def test_a_topic_that_does_not_exist_has_the_defaults(command: Command, topic: str) -> None:
    line = f"{topic}: keep=none drop=never (version none)\n"
    assert (
        done(command("topic", "show", topic))
        == f"{line}no server holds this topic yet; a default of the servers may hold for it\n"
    )
    defaults = {
        "topic": topic,
        "keep": "none",
        "drop": "never",
        "version": "",
        "conflict": False,
        "sources": {},
        "expire": "never",
        "tombstones": "1d",
        "rate": "none",
        "bytes": "none",
    }
    assert shown(command, topic) == defaults


def test_a_set_prints_what_is_in_force_and_show_prints_it_again(command: Command, topic: str) -> None:
    printed = done(command("topic", "set", topic, "keep=7d,10GiB"))
    assert printed.startswith(f"{topic}: keep=7d,10GiB drop=never (version ")
    assert done(command("topic", "show", topic)) == printed
    made = json.loads(done(command("topic", "set", topic, "drop=30d", "--yes", "--json")))
    assert (made["keep"], made["drop"]) == ("7d,10GiB", "30d")
    assert shown(command, topic) == made


def test_a_change_that_may_delete_messages_asks_first_and_changes_nothing_without_an_answer(
    command: Command, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(command("topic", "set", topic, "keep=7d"))
    before = shown(command, topic)
    for words in (["keep="], ["keep=1d"], ["drop=30d"], ["keep=ever", "drop=1GiB"]):
        assert command("topic", "set", topic, *words)[0] != 0
        assert shown(command, topic) == before
    done(command("topic", "set", topic, "keep=ever"))  # It lets nothing go.
    done(command("topic", "set", topic, "keep=", "drop=30d", "--yes"))
    done(command("topic", "set", topic, "drop="))
    after = shown(command, topic)
    assert (after["keep"], after["drop"]) == ("none", "never")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["keep"], "write keep=VALUE or drop=VALUE or expire=VALUE or tombstones=VALUE"),
        (["expires=1h"], "is no setting of a topic"),
        (["keep=1d", "keep=2d"], "keep is given twice"),
        (["keep=soon"], "keep is none, ever, latest, or amounts such as 7d"),
        (["tombstones=5m"], "tombstones is an age such as 1d, at least 1h"),
        (["drop=5 records"], "drop is never, an age"),
    ],
)
def test_words_that_are_no_settings_are_refused_in_one_line(
    command: Command, topic: str, words: list[str], text: str
) -> None:
    code, said = failed(command("topic", "set", topic, *words))
    assert code == 2
    assert text in said
    assert shown(command, topic)["version"] == ""


def test_a_set_with_another_base_is_refused_with_the_settings_in_force(command: Command, topic: str) -> None:
    done(command("topic", "set", topic, "keep=1d"))
    version = shown(command, topic)["version"]
    code, said = failed(command("topic", "set", topic, "keep=ever", "--base", "0123456789abcdef"))
    assert code == 15
    assert f"version {version}: keep=1d drop=never" in said
    done(command("topic", "set", topic, "keep=ever", "--base", version))
    assert shown(command, topic)["keep"] == "ever"


def test_topics_of_services_have_no_settings(command: Command) -> None:
    for words in (["set", "$calls.echo", "keep=1d"], ["show", "$calls.echo"]):
        assert "belongs to a service" in failed(command("topic", *words))[1]


def test_a_key_without_the_right_is_refused_in_one_line_that_names_it(
    command: Command, topic: str, directory: Path, tmp_path: Path
) -> None:
    keys = {}
    for name, right in (("looker", f"get={topic}"), ("changer", "operate"), ("stranger", "put=*")):
        keys[name] = str(tmp_path / f"{name}.key")
        public = make(Path(keys[name]))
        authorize_line(directory / "authorized", *parse_name("client", name), public, [right])

    def known(name: str) -> bool:
        """Return True once the proxies have read the access list again."""
        return command("topic", "show", topic, "--key", keys[name])[0] in {0, 22}

    for name in keys:
        until(lambda name=name: known(name), "the key is known")
    for name in ("looker", "changer"):
        assert done(command("topic", "show", topic, "--key", keys[name])).startswith(
            f"{topic}: keep=none drop=never (version none)\n"
        )
    assert f"needs get={topic}" in failed(command("topic", "show", topic, "--key", keys["stranger"]))[1]
    code, said = failed(command("topic", "set", topic, "keep=1d", "--key", keys["looker"]))
    assert code == 22
    assert "needs operate" in said
    assert "keep=1d" in done(command("topic", "set", topic, "keep=1d", "--key", keys["changer"]))


@pytest.mark.parametrize(
    ("keep", "drop", "given", "expected"),
    [
        ("none", "never", {"keep": "7d", "drop": None}, []),
        ("7d", "never", {"keep": "30d", "drop": None}, []),
        ("7d", "never", {"keep": "1d", "drop": None}, ["With keep=1d, acknowledged messages beyond it are deleted"]),
        (
            "ever",
            "10GiB",
            {"keep": "7d", "drop": None},
            ["With keep=7d, acknowledged", "Messages beyond keep and drop=10GiB go"],
        ),
        ("none", "never", {"keep": None, "drop": "1d"}, ["Messages beyond keep and drop=1d go"]),
        ("none", "1d", {"keep": None, "drop": "never"}, []),
        ("none", "never", {"keep": None, "drop": None, "expire": "1h"}, ["older than expire=1h are not delivered"]),
        ("none", "never", {"keep": None, "drop": None, "expire": "3h"}, []),
        ("7d or 5 records", "never", {"keep": "7d", "drop": None}, ["With keep=7d, acknowledged"]),
        ("of a later release", "never", {"keep": "ever", "drop": None}, ["With keep=ever, acknowledged"]),
    ],
)
def test_a_change_names_the_messages_that_it_may_delete(
    keep: str, drop: str, given: dict[str, str | None], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    present = TopicSettings("orders", keep, drop, "a" * 16, expire="2h")
    monkeypatch.setattr(topic_settings, "read_settings", lambda *_: present)
    found = topic_settings._consequences(None, "orders", given)  # type: ignore[arg-type]
    assert bool(found) == bool(expected)
    assert all(text in found for text in expected)
