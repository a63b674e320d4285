"""`pubsub server …`: a server in the foreground, and its directory tree out of and into a store."""

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

Store = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The directory of a server that does not run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def server() -> None:
    """Run a server: it owns topics and keeps them on its disk."""


@app.command()
@takes_settings(ServerSettings)
def start(loaded: Loaded[ServerSettings], lifeline: Lifeline = None) -> None:
    """Run one server until SIGTERM or SIGINT.

    It prints one line when it is ready, with the address it listens on.
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
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Directory to write to.")],
    directory: Store,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Write the topics that were given up here and set aside, instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a stopped server's topics as a directory tree.

    server_ID/TOPIC/subscribers, publishers, order, messages/ID; topics are percent-encoded.
    """
    from pubsub.server.offline.export import export_tree

    count = export_tree(directory, target, aside=quarantined)
    console.report(as_json, {"exported": str(target), "count": count}, f"exported {count:,} messages to {target}")


@app.command("import")
def import_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Directory tree to read.")],
    directory: Store,
    as_json: AsJson = False,
) -> None:
    """Read a directory tree into a stopped server's store, each topic into a fresh log.

    A topic that the store holds already is refused, and then nothing is imported.
    """
    from pubsub.server.offline.export import import_tree

    count = import_tree(directory, source)
    console.report(as_json, {"imported": str(source), "count": count}, f"imported {count:,} messages from {source}")


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m server ARGV…` from a checkout."""
    return console.run(app, "python -m server", argv)
