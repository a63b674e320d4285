"""`pubsub service broker` runs a Majordomo broker; `pubsub service list` shows its services."""

from __future__ import annotations

from typing import Annotated

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.interface import Port
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits
from pubsub.services.options import AsJson, AuditFile, Authorized, Heartbeat, Insecure, Liveness


def add_to(app: typer.Typer) -> None:
    app.command("broker")(broker)
    app.command("list")(list_services)


def broker_ports(address: str) -> tuple[Port, ...]:
    return (Port(PORT, address),)


def broker(
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDR", help="Address to listen on, such as tcp://127.0.0.1:5555.")
    ],
    heartbeat: Heartbeat = 2.5,
    liveness: Liveness = 3,
    expiry: Annotated[
        float,
        typer.Option("--expiry", metavar="SECONDS", help="Time for which a request waits for a worker.", min=0.01),
    ] = BrokerLimits.request_seconds,
    requests_max: Annotated[
        int, typer.Option("--requests-max", metavar="N", help="Maximum waiting requests of one service.", min=1)
    ] = BrokerLimits.requests_max,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run a Majordomo broker until SIGTERM or SIGINT. It serves the protocols MDP 0.1 and 0.2 at one address.

    A request goes to the worker that has been idle longest. When the broker is ready it prints one line with its
    address.
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
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Time limit of one try.", min=0.001)
    ] = 2.5,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Public key of the broker, pk_…")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the services of a broker: workers, idle workers, waiting requests, replies in all and per second.

    "longest" is the age of the oldest request that a worker is handling; a high value shows a handler that hangs.
    "given up" counts requests without a reply: the worker died, failed, or reached its handler time-out.

    The command asks twice, one second apart. A last line counts errors, such as invalid_header and requests_expired.
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
