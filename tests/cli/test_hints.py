"""A command that there is not points to the one that was meant, and that one is there."""

from __future__ import annotations

import re

import pytest

from pubsub.cli import main
from pubsub.cli.app import LAZY
from pubsub.cli.hints import HINTS, hint


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["put", "orders", "-"], "pubsub client ID put"),
        (["get", "orders"], "pubsub client ID get"),
        (["topics"], "pubsub status"),
        (["publish"], "pubsub client ID put TOPIC FILE"),
        (["topic", "ls"], "pubsub topic list"),
        (["topic", "make", "x"], "pubsub topic create TOPIC"),
        (["stop"], "pubsub down --dir DIR"),
        (["version"], "pubsub --version"),
        (["client", "put", "orders", "-"], "the client's ID comes first: pubsub client ID put orders"),
        (["client", "c", "publish", "x"], "pubsub client ID put TOPIC FILE"),
    ],
)
def test_a_wrong_command_points_to_the_right_one(
    words: list[str], instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert instead in line


def test_an_unknown_name_without_a_guess_points_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gibberish"]) == 2
    assert capsys.readouterr().err == "pubsub: error: No such command 'gibberish'; see: pubsub --help\n"
    assert hint("pubsub nothing", "put") == ""


def test_a_client_may_have_the_name_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "put", "--help"]) == 0
    assert main(["client", "put", "get", "a b"]) == 2
    assert "topic 'a b' is not allowed" in capsys.readouterr().err


def test_every_command_of_a_hint_exists(capsys: pytest.CaptureFixture[str]) -> None:
    named = {text for of in HINTS.values() for texts in of.values() for text in texts if text.startswith("pubsub ")}
    paths = {tuple(re.findall(r"[a-z-]+(?= |$)", text.removeprefix("pubsub ").split(" --")[0])) for text in named}
    for path in sorted(paths):
        words = ["client", "c", *path[1:]] if path[:1] == ("client",) and len(path) > 1 else list(path)
        assert main([*words, "--help"]) == 0, path
    capsys.readouterr()
    assert not HINTS["pubsub"].keys() & LAZY.keys()
