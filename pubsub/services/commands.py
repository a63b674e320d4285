"""`pubsub service …`: the messaging patterns of the ZeroMQ Guide. The command is the role; --kind is the pattern."""

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
"""Maximum calls in progress at a time."""


@app.callback()
def service() -> None:
    """Request and reply, in the patterns of the ZeroMQ Guide.

    docs/services.md describes them. For calls that happen once, use call and serve of pubsub client ID.
    """


Broker = Annotated[
    str, typer.Option("--broker", metavar="ADDR", help="Address of the broker, or of the queue's --backend.")
]
Name = Annotated[str, typer.Option("--name", help="Name in the access list, if keys are used.")]


@app.command()
def queue(
    kind: Annotated[str, typer.Option("--kind", help="Pattern: simple or paranoid.")],
    frontend: Annotated[
        str, typer.Option("--frontend", metavar="ADDR", help="Address for clients, such as tcp://127.0.0.1:5555.")
    ],
    backend: Annotated[str, typer.Option("--backend", metavar="ADDR", help="Address for workers.")],
    name: Name = "queue",
    heartbeat: Heartbeat = 1.0,
    liveness: Liveness = 3,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run a Simple or Paranoid Pirate queue until SIGTERM or SIGINT.

    A request goes to the worker that has been idle longest. When the queue is ready it prints one line with its
    addresses. The kind paranoid exchanges heartbeats with its workers, and drops a worker that is silent.
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service.")],
    broker: Broker,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND…]", help="Program to run for each request; without it requests are echoed."
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="Protocol of the broker or queue: mdp, mdp2, paranoid or simple.")
    ] = "mdp",
    heartbeat: WorkersHeartbeat = None,
    liveness: WorkersLiveness = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    broker_key: Annotated[str, typer.Option("--broker-key", metavar="KEY", help="Public key of the broker, pk_…")] = "",
) -> None:
    """Serve requests of a broker or queue until SIGTERM or SIGINT; a request in progress is answered first.

    COMMAND reads the request from standard input and writes the reply to standard output. If its exit code is not 0,
    or --handler-timeout kills it, the caller gets an error reply, or none in patterns without error replies.

    Example: pubsub service work upper --broker tcp://127.0.0.1:5555 -- tr a-z A-Z.
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
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDR", help="Address for clients, such as tcp://127.0.0.1:5555.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND…]", help="Program to run for each request; without it requests are echoed."
        ),
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="Pattern: lazy, freelance1, freelance2 or freelance3.")] = "lazy",
    name: Name = "service",
    advertise: Advertise = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    authorized: Authorized = None,
    insecure: Insecure = False,
) -> None:
    """Serve requests of clients without a broker until SIGTERM or SIGINT; a request in progress is answered first.

    COMMAND reads the request from standard input and writes the reply to standard output. When the server is ready it
    prints one line with its address.
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
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the service; any text in patterns without service names.")
    ],
    body: Annotated[str, typer.Argument(metavar="BODY|-", help="The request; - reads it from standard input.")],
    broker: Annotated[
        list[str],
        typer.Option("--broker", metavar="ADDR", help="Address of the broker, queue or server; repeat it for each."),
    ],
    kind: Annotated[
        str,
        typer.Option("--kind", help="Pattern: mdp, mdp2, titanic, lazy, freelance1, freelance2, freelance3 or star."),
    ] = "mdp",
    count: Annotated[int, typer.Option("--count", metavar="N", help="Number of calls.", min=1)] = 1,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", help="Calls in progress at a time.", min=1, max=PARALLEL_MAX)
    ] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Time limit of one try; default: that of the pattern.", min=0.001
        ),
    ] = None,
    tries: Annotated[
        int | None,
        typer.Option("--tries", metavar="N", help="Tries of one call; default: those of the pattern.", min=1),
    ] = None,
    key_file: KeyFile = None,
    broker_key: BrokerKey = None,
    as_json: AsJson = False,
) -> None:
    """Call a service and print the reply unchanged; with --count, one reply a line.

    With --count the command continues after a call without a reply. Its exit code is then that of the first failed
    call. Example: pubsub service call upper hello --broker tcp://127.0.0.1:5555.
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
    """If a call times out, add the reason that prevents connections to its error."""
    from pubsub.base.reachability import rejection
    from pubsub.services.errors import CallTimeout

    try:
        yield
    except CallTimeout as error:
        found = {address: rejection(address) for address in addresses}
        error.obstacles = "; ".join(f"{address}: {why}" for address, why in found.items() if why)
        raise


# Each of these modules adds its own commands.
majordomo.add_to(app)
titanic.add_to(app)
pair.add_to(app)
