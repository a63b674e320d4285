"""The Majordomo broker as a process, `pubsub service broker`, and what it has: `pubsub service list`."""

from __future__ import annotations

from typing import Annotated

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.interface import Port
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits
from pubsub.services.options import AsJson, AuditFile, Authorized, Heartbeat, Insecure, Liveness


def add_to(app: typer.Typer) -> None:
    """Add the commands to `pubsub service`."""
    app.command("broker")(broker)
    app.command("list")(list_services)


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


def list_services(
    broker: Annotated[str, typer.Option("--broker", metavar="ADDR", help="Address of the Majordomo broker.")],
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="For one try.", min=0.001)] = 2.5,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Its public key, pk_…")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the services of a broker: workers, how many are idle, requests that wait, replies in all and a second.

    "longest" is how long a worker has had its request: a handler that hangs is seen there. "given up" counts requests
    whose worker died, failed or was ended by its handler time-out. It asks twice, a second apart. A last line counts
    what should not happen: invalid_header, requests_expired …
    """
    from pubsub.base.reachability import telling_obstacles
    from pubsub.services.client import ServiceClient
    from pubsub.services.majordomo.listing import COLUMNS, ask_twice, remarks, rows

    with (
        ServiceClient(broker, timeout=timeout, key_file=key_file, broker_key=broker_key or ()) as client,
        telling_obstacles([broker], console.note),
    ):
        report = ask_twice(client)
    if as_json:
        console.print_json(report)
        return
    shown = console.table(*COLUMNS)
    for row in rows(report):
        shown.add_row(*row)
    console.print_table(shown)
    for remark in remarks(report):
        typer.echo(remark)
