"""Titanic as a process: `pubsub service titanic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.titanic.requests import State
from pubsub.services.core.titanic.titanic import Titanic, TitanicLimits


def add_to(app: typer.Typer) -> None:
    """Add the command to `pubsub service`."""
    app.command("titanic")(titanic)


def titanic(
    broker: Annotated[str, typer.Option("--broker", metavar="ADDR", help="Address of the Majordomo broker.")],
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where requests and replies are kept.")],
    reply_seconds: Annotated[
        float, typer.Option("--reply-timeout", metavar="SECONDS", help="Then the broker is asked about it.", min=0.01)
    ] = TitanicLimits.reply_seconds,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", help="Requests run at a time.", min=1, max=48)
    ] = TitanicLimits.parallel,
    keep: Annotated[
        float, typer.Option("--keep", metavar="SECONDS", help="How long requests and replies are kept.", min=0.01)
    ] = TitanicLimits.keep_seconds,
    requests_max: Annotated[
        int, typer.Option("--requests-max", metavar="N", help="Requests that are kept.", min=1)
    ] = TitanicLimits.requests_max,
    bytes_max: Annotated[
        int, typer.Option("--bytes-max", metavar="N", help="Of the file; 0: as the disk allows.", min=0)
    ] = 0,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Its public key, pk_…")] = "",
) -> None:
    """Keep requests on disk until a worker has answered, and replies until they are fetched; until SIGTERM or SIGINT.

    Clients use the services titanic.request, titanic.reply and titanic.close of the broker; `call --kind titanic` does.
    """
    import secrets

    from pubsub.base.clock import SystemClock
    from pubsub.services.engine import Engine
    from pubsub.services.keys import find_locks
    from pubsub.services.options import checked
    from pubsub.services.process import run_service
    from pubsub.services.titanic.disk import Disk
    from pubsub.services.titanic.store import Store

    console.keep_log("titanic", "titanic")
    (address,) = checked([broker], "--broker")
    locks = find_locks("titanic", dials=[address], key_file=key_file, expected=[broker_key] if broker_key else ())
    store = Store(directory, bytes_max)
    try:
        entries = store.entries()
        limits = TitanicLimits(reply_seconds, parallel, keep, requests_max)
        core = Titanic(address, lambda: secrets.token_hex(16).encode(), entries, store.age(), limits)
        disk = Disk(core, store, clock := SystemClock())
        engine = Engine(core, locks=locks, clock=clock, commit=disk.commit)
        waiting = sum(entry.state is State.PENDING for entry in entries)
        run_service(engine, lambda _: f"titanic ready: {address}, {waiting} requests in {directory} wait for a reply")
    finally:
        store.close()
