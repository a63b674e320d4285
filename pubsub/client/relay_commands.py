"""`pubsub relay`: sends the outgoing rows of a database."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pubsub import console
from pubsub.config.databases import DatabaseUrl
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError, ConfigurationError

if TYPE_CHECKING:
    from pubsub.client.relaying.running import OpenedClient

app = typer.Typer(name="relay", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

UNUSED: Final = frozenset(
    {"directory", "power_safe", "prefetch_records", "prefetch_bytes", "handler_attempts", "retry_first_seconds",
     "retry_longest_seconds", "dead_letters", "publisher_records", "publisher_bytes", "linger_seconds"}
)  # fmt: skip
"""Settings of a client that have no effect in a relay."""

Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="ID", help="Client ID of the relay; default: the one of the database, at first a new one."
    ),
]
Install = Annotated[
    bool, typer.Option("--install", help="Make the tables in the schema pubsub, unless they are there, and end.")
]
Print = Annotated[bool, typer.Option("--print", help="Print the SQL of --install and end; no database is needed.")]
Writers = Annotated[
    list[str] | None,
    typer.Option("--writers", metavar="ROLE", help="With --install or --print: a role that may write outgoing rows."),
]
MetricsAddress = Annotated[
    str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus here.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let other hosts read the metrics.")]


@app.command()
@takes_settings(ClientSettings, unused=UNUSED)
def relay(
    loaded: Loaded[ClientSettings],
    name: Name = None,
    install: Install = False,
    print_: Print = False,
    writers: Writers = None,
    metrics: MetricsAddress = None,
    insecure: Insecure = False,
) -> None:
    """Send the rows of pubsub.outgoing in the database, each once, until SIGTERM or Ctrl-C.

    A program in any language inserts a row in its own transaction. The row is sent after the commit, and never after a
    rollback. Any number of relays may run: one is active, and the others stand by and take over when it ends.

    Run it once with --install, as a role that may create a schema in the database.
    """
    from pubsub.client.storage.postgres import require_psycopg

    require_psycopg()
    from pubsub.client.outgoing import tables

    if print_:
        sys.stdout.write(tables.all_statements() + ("\n" + tables.grants(writers) if writers else ""))
        return
    if writers and not install:
        raise CallerError("--writers is for --install and --print: it grants rights once")
    if loaded.settings.database is None:
        raise ConfigurationError("pubsub relay needs a database: give --database URL, or set PUBSUB_CLIENT_DATABASE")
    url = DatabaseUrl(loaded.settings.database)
    if install:
        _install(url, writers or [])
        return
    _run(loaded.settings, url, name, metrics, insecure)


def _install(url: DatabaseUrl, writers: list[str]) -> None:
    from pubsub.client.outgoing import tables
    from pubsub.client.storage.postgres.connecting import connect

    connection = connect(url, "relay")
    try:
        tables.install(connection, writers)
    finally:
        connection.close()
    granted = f"; {', '.join(writers)} may write rows" if writers else ""
    console.announce(f"{url} has the tables pubsub.outgoing and pubsub.refused{granted}")


def _run(settings: ClientSettings, url: DatabaseUrl, name: str | None, metrics: str | None, insecure: bool) -> None:
    from threading import Event

    from pubsub.client import Client
    from pubsub.client.relaying.running import OpenedClient, Running
    from pubsub.metrics.serving import Metrics, said

    stop = Event()

    def opened(client_id: str) -> OpenedClient:
        client = Client(client_id, settings=replace(settings, database=url))
        return OpenedClient(client._held, client.close)

    pages = None if metrics is None else Metrics(metrics, lambda: None, insecure=insecure)

    def ready(client_id: str, active: bool) -> None:
        state = f"sends the rows of {url}" if active else f"stands by for {url}"
        console.announce(f"relay {client_id} {state}{said(pages)}")

    try:
        running = Running(url, name, opened, stop, ready, None if pages is None else pages.handover)
        console.keep_log("relay", running.name)
        before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            if pages is not None:
                pages.handover.started = True
            running.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    finally:
        if pages is not None:
            pages.close()
