"""The command `pubsub`: names its groups and imports each only when it is called.

A group is a module with a `typer.Typer` named `app`. Imports take most of the time of a short command. `LAZY` delays
them, so `pubsub client … put` never loads the modules that `pubsub server start` needs.
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
"""New objects after which Python searches for reference cycles. Python's default of 700 suits small programs only."""

LAZY: Final[dict[str, str]] = {
    "bench": "pubsub.cli.bench.command",
    "client": "pubsub.client.commands",
    "config": "pubsub.cli.settings",
    "down": "pubsub.cli.down",
    "gateway": "pubsub.cli.gateway",
    "group": "pubsub.cli.group",
    "http": "pubsub.http.commands",
    "keys": "pubsub.cli.keys",
    "pipeline": "pubsub.cli.pipeline",
    "proxy": "pubsub.proxy.commands",
    "relay": "pubsub.client.relay_commands",
    "server": "pubsub.cli.server_group",
    "service": "pubsub.services.commands",
    "status": "pubsub.cli.status",
    "top": "pubsub.cli.top",
    "topic": "pubsub.cli.topic",
    "up": "pubsub.cli.cluster",
    "webhook": "pubsub.gateway.commands",
    "witness": "pubsub.cli.witness",
}
"""Name of a group or command -> module with its `app`."""


class LazyGroup(TyperGroup):
    """A group that imports a command only when it is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(LAZY)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
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
    """Durable, exactly-once publish/subscribe on ZeroMQ.

    Begin with `pubsub up --dir cluster --detach`, which starts a cluster on this host. Each command has its own --help.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pubsub ARGV…` and return its exit code (docs/commands.md lists the codes)."""
    if argv is None:
        # The whole process belongs to this command, so it may collect garbage less often.
        gc.set_threshold(GARBAGE_THRESHOLD)
    return console.run(app, "pubsub", argv, hint)
