"""`pubsub client ID --database URL`, as a user types it: each command finds the client's state in the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.client import Client
from tests.client.conftest import service

SECRET = "hunter2"
__all__ = ["service"]
Lines = Callable[..., list[str]]


@pytest.fixture
def lines(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], database: str
) -> Lines:
    """Runs `pubsub client billing ARGUMENTS --database URL`, and returns the lines that it printed."""
    monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", service)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))

    def run(*arguments: str, code: int = 0, url: str = database) -> list[str]:
        capfd.readouterr()
        found = main(["client", "billing", *arguments, "--database", url])
        captured = capfd.readouterr()
        assert found == code, captured.err
        return (captured.err if code else captured.out).splitlines()

    return run


def test_commands_share_the_state_in_the_database(lines: Lines, tmp_path: Path, database: str) -> None:
    (unknown,) = lines("get", "orders", "--wait", "0", code=20)
    assert f"there is no client billing in {database} (there is none)" in unknown
    lines("subscribe", "orders")
    for body in ("one", "two", "three"):
        (tmp_path / "body").write_text(body)
        lines("put", "orders", str(tmp_path / "body"))
    assert lines("get", "orders", "--count", "2", "--wait", "10") == ["one", "two"]
    out = tmp_path / "out"
    lines("get", "orders", "--wait", "10", "--out", str(out))
    assert out.read_text() == "three"
    lines("flush")
    assert not (tmp_path / "share").exists()


def test_dead_letters_are_listed_beside_the_running_client(lines: Lines, service: str, database: str) -> None:
    with Client("billing", proxies=[service], database=database) as client:
        client.subscribe("letters")
        client.put("letters", b"bad")

        def rejects(*_: object) -> None:
            from pubsub.client import Reject

            raise Reject("of no use")

        client.process("letters", rejects)
        (letter,) = json.loads("\n".join(lines("dead-letters", "--json")))
        assert letter["error"] == "of no use"
        (refused,) = lines("dead-letters", "--redrive", "all", code=9)
        assert "in use by this very process" in refused
        (refused,) = lines("subscribe", "letters", code=9)
        assert "in use by this very process" in refused
    (letter,) = json.loads("\n".join(lines("dead-letters", "--json")))
    assert lines("dead-letters", "--redrive", letter["first"]) == ["redriven 1 dead letter of billing"]


def test_no_command_shows_the_password(lines: Lines, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = database.replace("postgres@", f"postgres:{SECRET}@")
    lines("subscribe", "orders", url=url)
    wrong = f"postgresql://app:{SECRET}@127.0.0.1:1/shop"
    for text in lines("get", "orders", url=wrong, code=7):
        assert SECRET not in text
    for text in lines("get", "orders", url=f"mysql://app:{SECRET}@db/shop", code=8):
        assert SECRET not in text


def test_the_settings_are_shown_without_the_password(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PUBSUB_CLIENT_DATABASE", f"postgresql://app:{SECRET}@db/shop")
    for options in ([], ["--json"]):
        assert main(["config", "show", "client", *options]) == 0
        shown = capfd.readouterr().out
        assert "postgresql://app@db/shop" in shown.replace("\n", "")
        assert SECRET not in shown
