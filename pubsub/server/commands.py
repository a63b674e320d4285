"""`pubsub server …`: runs a server, and exports and imports a stopped server's store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pubsub import console
from pubsub.config.loading import Loaded
from pubsub.config.settings import ServerSettings
from pubsub.console.options import Lifeline, takes_settings

app = typer.Typer(name="server", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

Store = Annotated[Path, typer.Option("--dir", metavar="DIR", help="State directory of a stopped server.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def server() -> None:
    """Run a server, which stores topics on its disk, or operate one."""


@app.command()
@takes_settings(ServerSettings)
def start(loaded: Loaded[ServerSettings], lifeline: Lifeline = None) -> None:
    """Run one server until SIGTERM or SIGINT.

    When it is ready it prints one line with the address that it listens on. Example: pubsub server start --id s1 --dir
    s1 --proxy tcp://127.0.0.1:5602.
    """
    import logging

    from pubsub.base.reachability import telling_obstacles
    from pubsub.server.process import run_server

    console.end_with_parent(lifeline)
    console.keep_log("server", loaded.settings.id)
    with telling_obstacles(loaded.settings.proxies, logging.getLogger("pubsub.server").warning):
        run_server(loaded.settings)


@app.command("export")
def export_command(
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="Directory to write into; an existing TARGET/server_ID is not replaced."),
    ],
    directory: Store,
    quarantined: Annotated[
        bool,
        typer.Option(
            "--quarantined", help="Write the quarantined topics instead: those that were given up on this server."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a stopped server's topics to a directory tree.

    The tree is server_ID/TOPIC/ with the files subscribers, publishers and order, and messages/ID for each message.
    Topic names are percent-encoded, as in a URL.
    """
    from pubsub.server.offline.export import export_tree

    count = export_tree(directory, target, quarantined=quarantined)
    console.report(as_json, {"exported": str(target), "count": count}, f"exported {count:,} messages to {target}")


@app.command("import")
def import_command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Directory tree, as pubsub server export writes it.")
    ],
    directory: Store,
    as_json: AsJson = False,
) -> None:
    """Read a directory tree into a stopped server's store.

    Each topic gets a new log. If the store already holds one of the topics, the command fails and imports nothing.
    """
    from pubsub.server.offline.export import import_tree

    count = import_tree(directory, source)
    console.report(as_json, {"imported": str(source), "count": count}, f"imported {count:,} messages from {source}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m server ARGV…` from a checkout, and return the exit code."""
    return console.run(app, "python -m server", argv)
