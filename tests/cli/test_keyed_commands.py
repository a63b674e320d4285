"""Operators' commands on a cluster that requires keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.cli.authorizing import authorize_line
from pubsub.cli.key_files import make
from pubsub.security.authorized import parse_name
from pubsub.security.files import read_key_file
from pubsub.security.keys import format_secret
from tests.cli.test_cluster import up
from tests.faults.cluster import until

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("keyed")
    with up(place, "--proxies", "2", "--servers", "2", "--keys"):
        yield place


@pytest.fixture
def command(directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("PUBSUB_PROXIES_FILE", str(directory / "proxies"))
    monkeypatch.setenv("PUBSUB_AUTHORIZED", str(directory / "authorized"))
    monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", str(directory / "client.key"))
    monkeypatch.setenv("XDG_DATA_HOME", str(directory / "home"))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def done(said: tuple[int, str, str]) -> Any:
    assert said[0] == 0, said[2]
    return json.loads(said[1])


def refused(said: tuple[int, str, str], code: int) -> str:
    assert (said[0], said[1]) == (code, ""), said
    assert said[2].count("\n") == 1
    return said[2]


def new_key(directory: Path, name: str, *rights: str) -> str:
    """A client's key file; without rights its key is in no line."""
    path = directory / f"{name}.key"
    public = make(path)
    if rights:
        authorize_line(directory / "authorized", *parse_name("client", name), public, list(rights))
    return str(path)


def followed(command: Command) -> None:
    """Returns when all of the cluster has the file of who is authorized as it is now."""

    def same() -> bool:
        digest = done(command("keys", "list", "--json"))["digest"]
        return [row["authorized"] for row in everybody(command)["keys"]] == [digest] * 4

    until(same, "all processes have read the file")


def everybody(command: Command) -> dict[str, Any]:
    """What status says, once all of the cluster is heard."""

    def look() -> dict[str, Any]:
        found: dict[str, Any] = done(command("status", "--json"))
        return found if len(found["keys"]) == 4 else {}

    return dict(until(look, "all processes answer"))


def test_status_shows_the_access_list_of_each_process(command: Command) -> None:
    found = everybody(command)
    assert {row["authorized"] for row in found["keys"]} == {done(command("keys", "list", "--json"))["digest"]}
    assert {row["id"] for row in found["keys"]} == {"p1", "p2", "s1", "s2"}
    assert found["warnings"] == []
    code, out, _ = command("status")
    assert code == 0
    assert "Keys" in out


def test_a_topic_is_moved_and_a_server_drained_with_the_right_to_operate(command: Command, directory: Path) -> None:
    operator = ("--key", new_key(directory, "operator", "operate"))
    everybody(command)
    body = directory / "body"
    body.write_text("x")
    done(command("client", "boss", "put", "moving", str(body), "--json"))
    (topic,) = [one for one in everybody(command)["topics"] if one["topic"] == "moving"]
    (giver,) = topic["owners"]
    other = {"s1": "s2", "s2": "s1"}[giver]

    followed(command)
    done(command("topic", "move", "moving", "--to", other, "--yes", "--json", *operator))
    assert done(command("server", "drain", other, "--yes", "--json", *operator))["moved"] != []
    done(command("server", "drain", other, "--stop", "--yes", "--json", *operator))


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("topic", "move", "t", "--to", "s1", "--yes"),
        ("server", "drain", "s1", "--yes"),
        ("server", "forget", "s9", "--yes"),
    ],
)
def test_a_command_without_a_key_names_the_option_for_one(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("PUBSUB_CLIENT_KEY_FILE")
    assert "name a key file by --key FILE or PUBSUB_CLIENT_KEY_FILE" in refused(command(*words), 8)


def test_a_key_without_the_right_is_denied_at_once(command: Command, directory: Path) -> None:
    key = new_key(directory, "talker", "put=*")
    watcher = new_key(directory, "watcher", "status")
    followed(command)
    assert "may not ask for status" in refused(command("status", "--key", key), 22)
    said = refused(command("server", "forget", "s9", "--yes", "--key", watcher), 13)
    assert "s9 is not known" in said
    assert "may not operate" in refused(command("server", "drain", "s1", "--yes", "--key", watcher), 22)


def test_an_unauthorized_key_is_refused_by_every_proxy(command: Command, directory: Path) -> None:
    key = new_key(directory, "nobody")
    started = time.monotonic()
    said = refused(command("status", "--key", key, "--wait", "60"), 21)
    assert time.monotonic() - started < 30, "it was not waited for"
    assert said.count("does not know the key") == 2
    assert "pubsub keys authorize client" in said


def test_a_revocation_names_the_processes_that_loaded_the_file(command: Command, directory: Path) -> None:
    everybody(command)
    new_key(directory, "leaver", "put=*")
    code, out, err = command("keys", "revoke", "leaver", "--wait", "20")
    assert code == 0, err
    assert out.splitlines()[-1] == "loaded by 2 of 2 proxies and 2 of 2 servers"
    new_key(directory, "second", "put=*")
    facts = done(command("keys", "revoke", "second", "--wait", "20", "--json"))
    assert facts["followed"] == {"proxy": ["p1", "p2"], "server": ["s1", "s2"]}


def test_a_revocation_names_the_processes_that_have_not_loaded_the_file(command: Command, directory: Path) -> None:
    everybody(command)
    (directory / "copy").write_text((directory / "authorized").read_text())  # Which nobody has been brought.
    code, out, err = command("keys", "revoke", "s2", "--authorized", str(directory / "copy"), "--wait", "0")
    assert code == 0, err
    assert out.splitlines()[-1] == "loaded by 0 of 2 proxies (not p1, p2) and 0 of 2 servers (not s1, s2)"


def test_a_key_is_revoked_though_no_proxy_can_be_asked(
    command: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in (("third", str(directory / "none")), ("fourth", new_key(directory, "unknown"))):
        new_key(directory, name, "put=*")
        monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", setting)
        code, out, err = command("keys", "revoke", name)
        assert code == 0
        assert out.startswith(f"revoked: client {name} ")
        assert "the proxies could not be asked whether they have loaded the file" in err
    assert command("keys", "revoke", "third")[0] == 13


def test_an_unusable_file_changes_nothing_and_status_names_it(command: Command, directory: Path) -> None:
    everybody(command)
    file = directory / "authorized"
    before = file.read_bytes()

    def named() -> set[str]:
        """The processes of which a warning says that they cannot use the file."""
        warnings: list[str] = done(command("status", "--json"))["warnings"]
        return {text.split(":")[0] for text in warnings if f"authorized file {file}, line 1" in text}

    try:
        file.write_text("nobody is anybody\n")
        everywhere = {"proxy p1", "proxy p2", "server s1", "server s2"}
        until(lambda: named() == everywhere, "all processes have looked")
    finally:
        file.write_bytes(before)
    until(lambda: named() == set(), "all processes have looked again")


def test_no_command_shows_a_secret(command: Command, directory: Path) -> None:
    secret = format_secret(read_key_file(directory / "client.key"))
    for words in (
        ("config", "show"),
        ("config", "show", "--json"),
        ("status",),
        ("keys", "list"),
        ("keys", "list", "--json"),
    ):
        code, out, err = command(*words)
        assert code == 0, err
        assert secret not in out + err
        assert "sk_" not in out + err
