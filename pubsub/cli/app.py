"""The command `pubsub`: names its groups and imports each only when it is called.

A group is a module with a `typer.Typer` called `app`. Most of what a command line costs is imports: with the groups
behind `LAZY`, `pubsub client … put` never loads what `pubsub server start` needs.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from pubsub import console
from pubsub.cli.hints import hint
from pubsub.console.parameters import prepared

GARBAGE_THRESHOLD: Final = 50_000
"""Objects made, less those freed, after which Python looks for cycles; its own 700 is for small programs."""

LAZY: Final[dict[str, str]] = {
    "bench": "pubsub.cli.bench.command",
    "client": "pubsub.client.commands",
    "config": "pubsub.cli.settings",
    "down": "pubsub.cli.down",
    "gateway": "pubsub.cli.gateway",
    "http": "pubsub.http.commands",
    "keys": "pubsub.cli.keys",
    "pipeline": "pubsub.cli.pipeline",
    "proxy": "pubsub.proxy.commands",
    "server": "pubsub.cli.server",
    "service": "pubsub.services.commands",
    "status": "pubsub.cli.status",
    "top": "pubsub.cli.top",
    "topic": "pubsub.cli.topic",
    "up": "pubsub.cli.cluster",
    "webhook": "pubsub.gateway.commands",
    "witness": "pubsub.cli.witness",
}
"""Name of a group or command -> the module whose `app` it is."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, without importing anything."""
        return list(LAZY)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None where there is no such name."""
        module = LAZY.get(cmd_name)
        if module is None:
            return None
        command = prepared(importlib.import_module(module).app)
        command.name = cmd_name
        return command


app = typer.Typer(cls=LazyGroup, name="pubsub", rich_markup_mode=None, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"pubsub {version('pirate-pubsub')}")
        raise typer.Exit


@app.callback()
def pubsub(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Durable, exactly-once publish/subscribe on ZeroMQ."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `pubsub ARGV…` and returns its exit code (docs/commands.md lists them)."""
    if argv is None:
        # This process is ours: fewer collections while modules are loaded, and while a server works.
        gc.set_threshold(GARBAGE_THRESHOLD)
    return console.run(app, "pubsub", argv, hint)
