"""`pubsub config …`: prints the settings and their origins."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from pubsub import console
from pubsub.config.loading import ROLES, configuration_path, survey, unknown_variables
from pubsub.config.locations import state_directory
from pubsub.errors import without_secrets

app = typer.Typer(name="config", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def config() -> None:
    """Show the settings and their origins.

    A flag comes before an environment variable, a variable before the TOML file, and the file before the default.
    """


@app.command()
def show(
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="[ROLE]...", help="proxy, server or client; default: all.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="TOML file with settings; default: PUBSUB_CONFIG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print each setting, its value, and its origin: flag, environment, file or default.

    It also lists environment variables that begin with PUBSUB_ and name no setting.
    """
    chosen = roles or list(ROLES)
    for role in chosen:
        if role not in ROLES:
            raise typer.BadParameter(f"{role!r} is not a role; the roles are {', '.join(ROLES)}")
    rows = [(role, *row) for role in chosen for row in survey(_settings(role), file=config)]
    path, named = configuration_path(config, os.environ)
    unknown = [without_secrets(name) for name in unknown_variables(os.environ)]
    if as_json:
        found: dict[str, Any] = {role: {} for role in chosen}
        for role, setting, value, origin in rows:
            found[role][setting] = {"value": value, "origin": origin}
        file = str(path) if named or path.exists() else None
        console.print_json({"file": file, "unknown_variables": unknown, "settings": found})
        return
    table = console.table("role", "setting", "value", "from")
    for role, setting, value, origin in rows:
        table.add_row(role, setting, _default(role, setting) if value is None else _shown(value), origin)
    console.print_table(table)
    typer.echo(f"file: {path}" + ("" if path.exists() else " (there is none)"))
    for name in unknown:
        typer.echo(f"unknown variable, without effect: {name}")


def _settings(role: str) -> Any:
    return ROLES[role]


def _default(role: str, setting: str) -> str:
    """Return the place that a setting without a value stands for; "" if it stands for none."""
    return str(state_directory("client", "ID")) if (role, setting) == ("client", "directory") else ""


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)
