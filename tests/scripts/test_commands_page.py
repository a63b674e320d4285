"""The reference of commands is the one that the commands make."""

from __future__ import annotations

import re

import typer
from commands_page import PAGE, page

from pubsub import errors
from pubsub.cli.app import LAZY, app
from pubsub.cli.server import CHECK_CODES


def section(title: str) -> str:
    found = page().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def test_the_page_is_made_from_the_present_commands() -> None:
    assert PAGE.read_text() == page(), "run `python scripts/commands_page.py`"


def test_each_command_has_a_section() -> None:
    titles = set(re.findall(r"^## (.+)$", page(), re.MULTILINE))
    assert {f"pubsub {name}" for name in LAZY} <= titles
    assert {"pubsub client ID put", "pubsub server switch", "pubsub keys authorize"} <= titles


def test_a_section_has_arguments_options_defaults_and_the_settings_that_are_shared() -> None:
    put = section("pubsub client ID put")
    assert "pubsub client ID put [OPTIONS] TOPIC PATH" in put
    assert "| `PATH <path>` | File with the message; - is standard input. | required |" in put
    assert "| `--lines` |" in put
    assert "--window" not in put
    handling = "`--handler-attempts`, `--prefetch-bytes`, `--prefetch-records`"
    assert f"{handling}, `--retry-first-seconds`, `--retry-longest-seconds` have no effect here." in put
    assert "[settings of a client](#settings-of-a-client)" in put
    assert "| `2.0; 0.01<=x<=600` |" in section("pubsub bench")
    assert "| `--window N` |" in section("Settings of a client")
    assert "| `--topics-max N` |" in section("Settings of a server")
    assert "| `--witness / --no-witness` |" in section("Settings of a proxy")


def test_hidden_options_are_omitted() -> None:
    assert "--lifeline" not in page()
    assert "--directory" not in page()


def test_each_exit_code_is_in_the_table() -> None:
    codes = {cls.exit_code for cls in vars(errors).values() if isinstance(cls, type) and hasattr(cls, "exit_code")}
    shown = set(re.findall(r"^\| (\d+) \|", page(), re.MULTILINE))
    assert {str(code) for code in codes | set(CHECK_CODES.values()) | {130, 141, 70}} <= shown


def test_the_commands_are_those_of_the_program() -> None:
    command = typer.main.get_command(app)
    assert command.list_commands(typer.Context(command)) == list(LAZY)  # type: ignore[attr-defined]
