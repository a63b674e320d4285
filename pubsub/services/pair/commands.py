"""`pubsub service pair`: runs one server of a Binary Star pair, of any kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pubsub import console
from pubsub.console.options import KeyFile
from pubsub.services.core.binary_star.star import HEARTBEAT_SECONDS
from pubsub.services.options import Advertise, AuditFile, Authorized, HandlerTimeout, Insecure
from pubsub.services.pairing import HEARTBEAT_SECONDS_MIN

if TYPE_CHECKING:
    from pubsub.services.core.interface import Core


def add_to(app: typer.Typer) -> None:
    app.command("pair")(pair)


Heartbeat = Annotated[
    float,
    typer.Option(
        "--heartbeat",
        metavar="SECONDS",
        help="Time between heartbeats of the two; equal at both.",
        min=HEARTBEAT_SECONDS_MIN,
    ),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND…]", help="Program to run for each request; without it requests are echoed."),
]
Kind = Annotated[
    str,
    typer.Option(
        "--kind", help="Server: lazy, freelance1, freelance2, freelance3. Broker: mdp. Queue: simple, paranoid."
    ),
]


def pair(
    primary: Annotated[bool, typer.Option("--primary/--backup", help="Role of this server in the pair.")],
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDR", help="Address for clients, such as tcp://127.0.0.1:5555.")
    ],
    state: Annotated[
        str, typer.Option("--state", metavar="ADDR", help="Address at which it publishes its state to the peer.")
    ],
    peer: Annotated[str, typer.Option("--peer", metavar="ADDR", help="The peer's --state address.")],
    command: Command = None,
    kind: Kind = "lazy",
    backend: Annotated[str, typer.Option("--backend", metavar="ADDR", help="Of a queue: address for workers.")] = "",
    name: Annotated[str, typer.Option("--name", help="Name in the access list, if keys are used.")] = "service",
    heartbeat: Heartbeat = HEARTBEAT_SECONDS,
    advertise: Advertise = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    peer_key: Annotated[str, typer.Option("--peer-key", metavar="KEY", help="Public key of the peer, pk_…")] = "",
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run one server of a Binary Star pair until SIGTERM or SIGINT.

    One of the two is active and takes requests. The other takes over if the active one is silent for two heartbeats
    and a client asks. When the server is ready it prints one line with its address. It reports each change of its
    state on stderr.
    """
    from pubsub.services.core.binary_star.states import Role
    from pubsub.services.kinds import SERVERS
    from pubsub.services.options import checked
    from pubsub.services.pairing import Pairing

    role = Role.PRIMARY if primary else Role.BACKUP
    console.keep_log(role.value, name)
    (state,), (peer,) = checked([state], "--state", bind=True), checked([peer], "--peer")
    pairing = Pairing(role, state, peer, heartbeat)
    _check(kind, command, backend, audit_file)
    keys = {"key_file": key_file, "authorized": authorized, "insecure": insecure}
    if kind in SERVERS:
        work = (command, handler_timeout)
        _serve(pairing, name, bind, kind, work, broker_key=peer_key, advertise=advertise, **keys)
    else:
        expected = [peer_key] if peer_key else []
        binds = checked([bind, *([backend] if backend else [])], "--bind or --backend", bind=True)
        _distribute(pairing, name, kind, binds, expected=expected, audit_file=audit_file, **keys)


def _check(kind: str, command: list[str] | None, backend: str, audit_file: str | None) -> None:
    """Check that the options fit together.

    Raises:
        CallerError: they do not.
    """
    from pubsub.errors import CallerError
    from pubsub.services.kinds import QUEUES, SERVERS

    if command and kind not in SERVERS:
        raise CallerError(
            f"--kind {kind} runs no COMMAND, because its workers do the work; start them with pubsub service work"
        )
    if (kind in QUEUES) != bool(backend):
        raise CallerError("--backend is required for --kind simple and paranoid, and not allowed for others")
    if audit_file and kind in SERVERS:
        raise CallerError("--audit-file is allowed for brokers and queues only; leave it out")


def _serve(
    pairing: Any, name: str, bind: str, kind: str, work: tuple[list[str] | None, float | None], **more: Any
) -> None:
    from pubsub.services.command import handler_of
    from pubsub.services.process import run_worker
    from pubsub.services.worker import Worker

    worker = Worker(name, bind=bind, kind=kind, handler=handler_of(*work), pair=pairing, **more)
    run_worker(worker, lambda: f"{pairing.role.value} {name} ready: {worker.address}")


def _distribute(pairing: Any, name: str, kind: str, binds: list[str], **keys: Any) -> None:
    """Run a broker or a queue; separate workers do the work."""
    from pubsub.services.calling import core_of
    from pubsub.services.core.binary_star.paired import Paired
    from pubsub.services.core.majordomo.broker import Broker
    from pubsub.services.core.queue import PirateQueue
    from pubsub.services.keys import find_locks
    from pubsub.services.kinds import QUEUES
    from pubsub.services.majordomo.commands import broker_ports
    from pubsub.services.process import run_service

    make: Callable[[], Core]
    if kind == "mdp":
        ports, make = broker_ports(*binds), Broker
    else:
        queue = core_of(kind, QUEUES, "of queue, broker or server")
        ports, make = PirateQueue.ports(*binds), partial(queue, name, 1.0, 3)
    locks = find_locks(name, binds=[*binds, pairing.state], dials=[pairing.peer], **keys)
    engine = pairing.engine(Paired(pairing.role, make, pairing.heartbeat), ports, locks=locks)
    run_service(engine, lambda at: f"{pairing.role.value} {name} ready: {', '.join(at[port.name] for port in ports)}")
