"""The Majordomo broker as a process: `pubsub service broker`."""

from __future__ import annotations

from typing import Annotated

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.interface import Port
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits
from pubsub.services.options import AuditFile, Authorized, Heartbeat, Insecure, Liveness


def add_to(app: typer.Typer) -> None:
    """Add the command to `pubsub service`."""
    app.command("broker")(broker)


def broker_ports(address: str) -> tuple[Port, ...]:
    """The sockets of a broker that listens on an address."""
    return (Port(PORT, address),)


def broker(
    bind: Annotated[str, typer.Option("--bind", metavar="ADDR", help="Address to listen on.")],
    heartbeat: Heartbeat = 2.5,
    liveness: Liveness = 3,
    expiry: Annotated[
        float, typer.Option("--expiry", metavar="SECONDS", help="How long a request waits for a worker.", min=0.01)
    ] = BrokerLimits.request_seconds,
    requests_max: Annotated[
        int, typer.Option("--requests-max", metavar="N", help="Requests of one service that wait.", min=1)
    ] = BrokerLimits.requests_max,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run a Majordomo broker, MDP 0.1 and 0.2 at one address, until SIGTERM or SIGINT.

    Requests go to the worker that has been free for longest. It prints one line when it is ready.
    """
    from pubsub.services.engine import Engine
    from pubsub.services.keys import find_locks
    from pubsub.services.options import checked
    from pubsub.services.process import run_service

    console.keep_log("broker", "broker")
    (address,) = checked([bind], "--bind", bind=True)
    locks = find_locks(
        "broker", binds=[address], key_file=key_file, authorized=authorized, audit_file=audit_file, insecure=insecure
    )
    core = Broker(BrokerLimits(heartbeat, liveness, expiry, requests_max))
    engine = Engine(core, broker_ports(address), locks=locks)
    run_service(engine, lambda addresses: f"broker ready at {addresses[PORT]}")
