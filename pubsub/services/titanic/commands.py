"""`pubsub service titanic`: runs a Titanic process, a store of requests in front of a Majordomo broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.titanic.requests import State
from pubsub.services.core.titanic.titanic import Titanic, TitanicLimits


def add_to(app: typer.Typer) -> None:
    app.command("titanic")(titanic)


ReplySeconds = Annotated[
    float,
    typer.Option(
        "--reply-timeout",
        metavar="SECONDS",
        help="Time without a reply after which it asks the broker about a request.",
        min=0.01,
    ),
]
BytesMax = Annotated[
    int,
    typer.Option("--bytes-max", metavar="N", help="Maximum bytes of its file; 0: the free space of the disk.", min=0),
]


def titanic(
    broker: Annotated[str, typer.Option("--broker", metavar="ADDR", help="Address of the Majordomo broker.")],
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Directory that stores requests and replies.")
    ],
    reply_seconds: ReplySeconds = TitanicLimits.reply_seconds,
    parallel: Annotated[
        int,
        typer.Option("--parallel", metavar="N", help="Requests in progress at the broker at a time.", min=1, max=48),
    ] = TitanicLimits.parallel,
    keep: Annotated[
        float, typer.Option("--keep", metavar="SECONDS", help="Time for which requests and replies are kept.", min=0.01)
    ] = TitanicLimits.keep_seconds,
    requests_max: Annotated[
        int, typer.Option("--requests-max", metavar="N", help="Maximum number of stored requests.", min=1)
    ] = TitanicLimits.requests_max,
    bytes_max: BytesMax = 0,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Public key of the broker, pk_…")] = "",
) -> None:
    """Store requests on disk until a worker has answered, and replies until a client fetches them. Until SIGTERM or
    SIGINT.

    Clients use the services titanic.request, titanic.reply and titanic.close of the broker. pubsub service call --kind
    titanic does that. When it is ready it prints one line with the number of requests that wait for a reply.
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
