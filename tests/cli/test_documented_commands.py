"""Each command of `pubsub` that the how-to pages name exists, with the options that stand behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli.app import app
from pubsub.console.parameters import prepared

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs/how-to").glob("*.md")),
    ROOT / "docs/tutorial.md",
    ROOT / "docs/coming-from.md",
    ROOT / "examples/README.md",
]
SHOWN = re.compile(r"`(pubsub [^`\n]+)`|^ *\$ (?:.*[|;] )?(pubsub .*)$", re.MULTILINE)
ROOT_COMMAND: Any = prepared(app)


def problem(line: str) -> str:
    """What is wrong with a command line; "" where it can be called."""
    words = re.split(r"\s+", re.split(r" (?:\||>|#|&|2>|<<<|--(?= )).*|\$\(|;", line)[0].strip())[1:]
    command, place = ROOT_COMMAND, 0
    context = command.context_class(command, info_name="pubsub")
    while hasattr(command, "get_command") and place < len(words):
        word = words[place]
        if word.startswith(("-", "…")):
            break
        place += 1
        if "ID" in {getattr(one, "metavar", None) or one.name.upper() for one in command.params} and place == 2:
            continue  # `pubsub client ID COMMAND`
        found = command.get_command(context, word.split("|")[0])
        if found is None:
            return f"no {word!r} in {line!r}"
        command = found
        context = command.context_class(command, info_name=word, parent=context)
    known = [command, *([] if context.parent is None else [context.parent.command])]
    options = {name for one in known for param in one.params for name in [*param.opts, *param.secondary_opts]}
    unknown = [word for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)) if word not in options]
    return f"no {unknown} in {line!r}" if set(unknown) - {"--help", "--version"} else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    lines = [inline or typed for inline, typed in SHOWN.findall(page.read_text())]
    assert [found for line in lines if (found := problem(line))] == []


def test_a_missing_command_or_option_is_found() -> None:
    assert problem("pubsub topic move TOPIC --to s2") == ""
    assert problem("pubsub client ID put TOPIC - --lines") == ""
    assert "shift" in problem("pubsub topic shift TOPIC")
    assert "--where" in problem("pubsub topic move TOPIC --where s2")
    assert "putt" in problem("pubsub client ID putt TOPIC")
