"""The option of a state directory is `--dir` in every command; its old forms still work, and no help shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pubsub.cli.app import app, main
from pubsub.console.parameters import prepared
from pubsub.http import filing

OLD = ("--data", "--directory")


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command below one, by the words that call it."""
    yield " ".join(path), command
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))


COMMANDS = dict(walk(prepared(app)))


def directory_of(command: Any, words: list[str]) -> object:
    """What a command line gives as the state directory, read by the command's own parser."""
    context = typer.Context(command, resilient_parsing=True)
    (option,) = (one for one in command.params if "--dir" in one.opts)
    values, _, _ = command.make_parser(context).parse_args(words)
    return values.get(option.name)


def test_every_command_with_a_state_directory_reads_all_names_and_shows_one() -> None:
    taking = {path: command for path, command in COMMANDS.items() if any("--dir" in one.opts for one in command.params)}
    assert {
        "up", "down", "proxy start", "server start", "server export", "server import", "server restored",
        "server check", "server promote", "gateway start", "service titanic", "http serve", "http put",
        "client put", "client get",
    } <= set(taking)  # fmt: skip
    for command in taking.values():
        for flag in ("--dir", *OLD):
            assert directory_of(command, [flag, "place"]) == "place"
            assert directory_of(command, [f"{flag}=place"]) == "place"


def test_no_command_names_a_state_directory_otherwise() -> None:
    for path, command in COMMANDS.items():
        help_text = command.get_help(typer.Context(command, info_name=path))
        usage = help_text.splitlines()[0]
        assert not any(re.search(rf"{old}(?![\w-])", help_text) for old in OLD), path
        assert not {"DATA", "old_form", "OLD_FORM"} & set(re.findall(r"\w+", usage)), path
        offered = [item.value for item in command.shell_complete(typer.Context(command), "--d")]
        assert not set(OLD) & set(offered), path


def test_an_old_name_reaches_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = set()
    for flag in ("--dir", *OLD):
        assert main(["server", "export", str(tmp_path / "tree"), flag, str(tmp_path / "none")]) == 8
        said.add(capsys.readouterr().err)
    (complaint,) = said
    assert str(tmp_path / "none") in complaint


@pytest.mark.parametrize("words", [["DIR"], ["--dir", "DIR"], ["--directory", "DIR"]])
def test_a_directory_without_an_option_is_still_read(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "none"
    given = [str(place) if word == "DIR" else word for word in words]
    assert main(["server", "check", *given]) == 8
    assert str(place) in capsys.readouterr().err
    seen: list[Path] = []
    monkeypatch.setattr(filing, "run", lambda directory, *_, **__: seen.append(directory))
    assert main(["http", "serve", *given]) == 0
    assert seen == [place]


@pytest.mark.parametrize("command", [["server", "check"], ["http", "serve"]])
def test_a_directory_that_is_not_named_or_named_twice_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert capsys.readouterr().err == "pubsub: error: missing option --dir\n"
    assert main([*command, "a", "--dir", "b"]) == 2
    assert capsys.readouterr().err == "pubsub: error: the directory is named twice; name it by --dir only\n"
