"""`pubsub service …`: the patterns from the command line. Each role is a command; the kind says which pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.majordomo import commands as majordomo
from pubsub.services.options import (
    Advertise,
    AsJson,
    AuditFile,
    Authorized,
    BrokerKey,
    HandlerTimeout,
    Heartbeat,
    Insecure,
    Liveness,
    WorkersHeartbeat,
    WorkersLiveness,
)
from pubsub.services.pair import commands as pair
from pubsub.services.titanic import commands as titanic

app = typer.Typer(name="service", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

PARALLEL_MAX: Final = 1_000
"""Calls that `call` has under way."""


@app.callback()
def service() -> None:
    """Request and reply that survive, in the patterns of the ZeroMQ Guide (docs/services.md)."""


Broker = Annotated[str, typer.Option("--broker", metavar="ADDR", help="Address of the broker, or of the queue's back.")]
Name = Annotated[str, typer.Option("--name", help="What keys' rights call it.")]


@app.command()
def queue(
    kind: Annotated[str, typer.Option("--kind", help="simple or paranoid.")],
    frontend: Annotated[str, typer.Option("--frontend", metavar="ADDR", help="Where clients call.")],
    backend: Annotated[str, typer.Option("--backend", metavar="ADDR", help="Where workers come.")],
    name: Name = "queue",
    heartbeat: Heartbeat = 1.0,
    liveness: Liveness = 3,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run a Simple or Paranoid Pirate queue until SIGTERM or SIGINT.

    Requests go to the worker that has been free for longest. It prints one line when it is ready.
    """
    from pubsub.services.calling import core_of
    from pubsub.services.core.queue import BACKEND, FRONTEND, PirateQueue
    from pubsub.services.engine import Engine
    from pubsub.services.keys import find_locks
    from pubsub.services.kinds import QUEUES
    from pubsub.services.options import checked
    from pubsub.services.process import run_service

    console.keep_log("queue", name)
    addresses = [*checked([frontend], "--frontend", bind=True), *checked([backend], "--backend", bind=True)]
    core = core_of(kind, QUEUES, "of queue")(name, heartbeat, liveness)
    locks = find_locks(
        name, binds=addresses, key_file=key_file, authorized=authorized, audit_file=audit_file, insecure=insecure
    )
    engine = Engine(core, PirateQueue.ports(*addresses), locks=locks)
    run_service(engine, lambda at: f"queue {name} ready: clients {at[FRONTEND]}, workers {at[BACKEND]}")


@app.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True})
def work(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the service.")],
    broker: Broker,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="Run for each request; none: echo.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="mdp, mdp2, paranoid or simple.")] = "mdp",
    heartbeat: WorkersHeartbeat = None,
    liveness: WorkersLiveness = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Its public key, pk_…")] = "",
) -> None:
    """Work for a broker or queue until SIGTERM or SIGINT: the request in hand is answered first.

    COMMAND gets the request on standard input, and what it writes is the reply; with another exit code than 0 there is
    an error reply, or none, as the pattern has it. The same where it is killed by --handler-timeout. Without a command
    requests are echoed.
    """
    from pubsub.base.reachability import telling_obstacles
    from pubsub.services.command import handler_of
    from pubsub.services.process import run_worker
    from pubsub.services.worker import Worker

    console.keep_log("worker", name)
    worker = Worker(
        name,
        broker=broker,
        kind=kind,
        handler=handler_of(command, handler_timeout),
        heartbeat=heartbeat,
        liveness=liveness,
        key_file=key_file,
        broker_key=broker_key,
    )
    with telling_obstacles([broker], console.note):
        run_worker(worker, lambda: f"worker {name} ready: {broker}")


@app.command()
def serve(
    bind: Annotated[str, typer.Option("--bind", metavar="ADDR", help="Where clients call.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="Run for each request; none: echo.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="lazy, or freelance1 to freelance3.")] = "lazy",
    name: Name = "service",
    advertise: Advertise = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    insecure: Insecure = False,
) -> None:
    """Serve without a queue until SIGTERM or SIGINT: the request in hand is answered first.

    COMMAND as of `work`. It prints one line when it is ready.
    """
    from pubsub.services.command import handler_of
    from pubsub.services.process import run_worker
    from pubsub.services.worker import Worker

    console.keep_log("server", name)
    worker = Worker(
        name,
        bind=bind,
        kind=kind,
        handler=handler_of(command, handler_timeout),
        key_file=key_file,
        authorized=authorized,
        insecure=insecure,
        advertise=advertise,
    )
    run_worker(worker, lambda: f"server {name} ready: {worker.address}")


@app.command()
def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the service; any where the pattern names none.")],
    body: Annotated[str, typer.Argument(metavar="BODY|-", help="The request; - is standard input.")],
    broker: Annotated[
        list[str], typer.Option("--broker", metavar="ADDR", help="Address of the broker, queue, server.")
    ],
    kind: Annotated[
        str, typer.Option("--kind", help="mdp, mdp2, titanic, lazy, freelance1 to freelance3, star.")
    ] = "mdp",
    count: Annotated[int, typer.Option("--count", metavar="N", help="So many calls.", min=1)] = 1,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", help="So many at a time.", min=1, max=PARALLEL_MAX)
    ] = 1,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="For one try; else as usual.", min=0.001)
    ] = None,
    tries: Annotated[
        int | None, typer.Option("--tries", metavar="N", help="Of one call; else as usual.", min=1)
    ] = None,
    key_file: KeyFile = None,
    broker_key: BrokerKey = None,
    as_json: AsJson = False,
) -> None:
    """Call a service and write the replies, one a line; a single one as it is.

    With --count the calls go on after one that came to no reply, and the exit code is that of the first such.
    """
    from pubsub.base.reachability import telling_obstacles
    from pubsub.services.client import ServiceClient
    from pubsub.services.many import Output, call_many, read_request

    request = read_request() if body == "-" else body.encode()
    with (
        ServiceClient(
            broker, kind=kind, timeout=timeout, tries=tries, key_file=key_file, broker_key=broker_key or ()
        ) as client,
        telling_obstacles(broker, console.note),
        _looking(broker),
    ):
        call_many(client, name, request, count, parallel, Output(as_json, alone=count == 1))


@contextmanager
def _looking(addresses: Sequence[str]) -> Iterator[None]:
    """Where a call gets no reply, say what keeps connections from being made."""
    from pubsub.base.reachability import obstacle
    from pubsub.services.errors import CallTimeout

    try:
        yield
    except CallTimeout as error:
        found = {address: obstacle(address) for address in addresses}
        error.obstacles = "; ".join(f"{address}: {why}" for address, why in found.items() if why)
        raise


# Commands of other modules: each has `def add_to(app)`.
majordomo.add_to(app)
titanic.add_to(app)
pair.add_to(app)
