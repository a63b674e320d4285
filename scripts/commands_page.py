"""Write docs/reference/commands.md: every command, option, default and exit code, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import typer

import pubsub.client.errors
import pubsub.errors
import pubsub.http.errors
import pubsub.services.errors
from pubsub.cli.app import app
from pubsub.cli.server import CHECK_CODES
from pubsub.config.loading import flag_name
from pubsub.config.settings import ClientSettings, ProxySettings, RoleSettings, ServerSettings
from pubsub.console import terminal

PAGE = Path(__file__).parents[1] / "docs/reference/commands.md"
HEAD = """\
# Commands and options

<!-- Made by `python scripts/commands_page.py` from the commands. Change them there. -->

Each section has the help of a command, with its arguments, options and defaults. `--help` of the command prints the
same. An option without a default is optional. The [glossary](../glossary.md) defines the terms. The guide
[Commands](../commands.md) has tasks, output, and the action for each exit code.

## Exit codes

| code | raised as | meaning |
|---|---|---|
"""
ROLES: Final = (ClientSettings, ProxySettings, ServerSettings)
IN_ALL: Final = {"--help", "--install-completion", "--show-completion"}
"""Options of every command; the sections leave them out."""

OF_COMMANDS: Final = {
    "EXIT_OK": "Success.",
    "EXIT_ERROR": "A failure without a code of its own.",
    "EXIT_BAD_INPUT": "Bad input: a command line, name, file or size.",
    "EXIT_NO_MESSAGE": "No message within the wait.",
    "EXIT_INTERNAL": "A fault of the program itself.",
    "EXIT_INTERRUPTED": "Interrupted by a signal.",
    "EXIT_READER_GONE": "The program that reads the output has closed it.",
}
"""Exit codes that no exception carries."""

STATES: Final = {
    "damaged": "the store is damaged, and a server starts on it",
    "broken": "the store is broken, and no server starts on it",
    "stale": "the store is an older copy of itself",
    "newer": "a newer release wrote the store",
}
"""Verdict of `server check` on a store that is not intact -> its meaning."""


def exit_codes() -> Iterator[str]:
    """The lines of the table of exit codes."""
    found: dict[int, tuple[list[str], str]] = {}
    for name, meaning in OF_COMMANDS.items():
        found[getattr(terminal, name)] = ([], meaning)
    for module in (pubsub.errors, pubsub.client.errors, pubsub.http.errors, pubsub.services.errors):
        for cls in vars(module).values():
            if isinstance(cls, type) and "exit_code" in vars(cls) and cls.__module__ == module.__name__:
                meaning = (cls.__doc__ or "").partition("\n\n")[0]
                names, _ = found.setdefault(vars(cls)["exit_code"], ([], " ".join(meaning.split())))
                names.append(f"`{cls.__name__}`")
    found |= {code: ([], f"`server check`: {STATES[state]}.") for state, code in CHECK_CODES.items() if code}
    for code, (names, meaning) in sorted(found.items()):
        yield f"| {code} | {', '.join(names)} | {cell(meaning)} |"


def cell(text: str) -> str:
    """Text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """A name or a form as code in a cell."""
    return f"`{text}`".replace("|", "\\|")


def settings(role: type[RoleSettings]) -> set[str]:
    """The options of a role's settings."""
    return {"--config", "--proxies-file" if role is not ProxySettings else "--bind"} | {
        flag_name(role.role, field.name) for field in fields(role)
    }


def row(parameter: Any, context: Any) -> tuple[str, str] | None:
    """An argument's or option's first name and its line; None where help does not show it."""
    record = parameter.get_help_record(context)
    if record is None or IN_ALL & set(parameter.opts):
        return None
    name, text = record
    about = re.search(r"(?:^|\s+)\[([^\]]*)\]$", text)
    default = about[1].removeprefix("default: ") if about else ""
    meaning = cell(text[: about.start()] if about else text)
    return parameter.opts[
        0
    ], f"| {code(name)} | {meaning} | {default if default in {'', 'required'} else code(default)} |"


def table(rows: list[str]) -> str:
    """A table of arguments and options."""
    return "\n".join(["", "| argument or option | meaning | default and bounds |", "|---|---|---|", *rows])


def section(command: Any, context: Any) -> Iterator[str]:
    """The lines of a command and of those below it."""
    path = re.sub(r"[{}]", "", context.command_path)
    yield f"\n## {path}\n"
    if not hasattr(command, "list_commands"):
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        yield f"```text\n{re.sub(r'[{}]', '', usage)}\n```\n"
    yield paragraphs(command.help or "")
    found = dict(filter(None, (row(parameter, context) for parameter in command.get_params(context))))
    taken = {parameter.opts[0] for parameter in command.get_params(context)}
    shared = {role: sorted(settings(role) - found.keys()) for role in ROLES if settings(role) <= taken}
    for role in shared:
        found = {name: line for name, line in found.items() if name not in settings(role)}
    if found:
        yield table(list(found.values()))
    for role, hidden in shared.items():
        name, unused = role.role, ", ".join(map(code, hidden))
        text = f"\nIt also takes the [settings of a {name}](#settings-of-a-{name})"
        yield f"{text}; {unused} have no effect here." if unused else f"{text}."
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        yield from section(below, type(context)(below, info_name=name, parent=context))


def paragraphs(text: str) -> str:
    """Help as paragraphs of Markdown, with Markdown's own characters escaped."""
    return re.sub(r"([<*_\[\]])", r"\\\1", text.strip())


def role_settings(role: type[RoleSettings], command: Any, context: Any) -> Iterator[str]:
    """The lines of a role's settings, as one of its commands takes them."""
    found = dict(filter(None, (row(parameter, context) for parameter in command.get_params(context))))
    yield f"\n## Settings of a {role.role}\n"
    yield "Each is a flag, a variable of the environment and a key of the file ([settings](../commands.md#settings))."
    yield table([line for name, line in found.items() if name in settings(role)])


def page() -> str:
    """The complete page."""
    command = typer.main.get_command(app)
    top = typer.Context(command, info_name="pubsub")
    lines = [*exit_codes(), *section(command, top)]
    for role, path in zip(ROLES, (("client", "flush"), ("proxy", "start"), ("server", "start")), strict=True):
        group = command.get_command(top, path[0])  # type: ignore[attr-defined]
        within = type(top)(group, info_name=path[0], parent=top)
        leaf = group.get_command(within, path[1])
        lines += role_settings(role, leaf, type(top)(leaf, info_name=path[1], parent=within))
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
