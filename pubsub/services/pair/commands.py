"""One server of a Binary Star pair as a process, whatever it serves: `pubsub service pair`."""

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
    """Add the command to `pubsub service`."""
    app.command("pair")(pair)


def pair(
    primary: Annotated[bool, typer.Option("--primary/--backup", help="Which of the two this is.")],
    bind: Annotated[str, typer.Option("--bind", metavar="ADDR", help="Where clients call.")],
    state: Annotated[str, typer.Option("--state", metavar="ADDR", help="Where it says what it is; it listens there.")],
    peer: Annotated[str, typer.Option("--peer", metavar="ADDR", help="Where the other one says it.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="Run for each request; none: echo.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="lazy, freelance1 to freelance3; mdp (a broker); simple, paranoid (queues).")
    ] = "lazy",
    backend: Annotated[str, typer.Option("--backend", metavar="ADDR", help="Of a queue: where workers come.")] = "",
    name: Annotated[str, typer.Option("--name", help="What keys' rights call it.")] = "service",
    heartbeat: Annotated[
        float,
        typer.Option(
            "--heartbeat", metavar="SECONDS", help="Between the two; the same at both.", min=HEARTBEAT_SECONDS_MIN
        ),
    ] = HEARTBEAT_SECONDS,
    advertise: Advertise = None,
    handler_timeout: HandlerTimeout = None,
    key_file: KeyFile = None,
    peer_key: Annotated[str, typer.Option("--peer-key", metavar="KEY", help="The other's public key, pk_…")] = "",
    authorized: Authorized = None,
    audit_file: AuditFile = None,
    insecure: Insecure = False,
) -> None:
    """Run one server of a Binary Star pair until SIGTERM or SIGINT.

    Of the two one is active and takes requests. The other takes over when the active one is silent for two heartbeats
    and a client asks. It prints one line when it is ready, and says on stderr what it is each time that changes.
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
    """See that what is given goes together.

    Raises:
        CallerError: it does not.
    """
    from pubsub.errors import CallerError
    from pubsub.services.kinds import QUEUES, SERVERS

    if command and kind not in SERVERS:
        raise CallerError(f"a COMMAND does the work of a server; of kind {kind} are workers: pubsub service work")
    if (kind in QUEUES) != bool(backend):
        raise CallerError("--backend is for queues, of kind simple or paranoid, which need it")
    if audit_file and kind in SERVERS:
        raise CallerError("--audit-file is for brokers and queues")


def _serve(
    pairing: Any, name: str, bind: str, kind: str, work: tuple[list[str] | None, float | None], **more: Any
) -> None:
    from pubsub.services.command import handler_of
    from pubsub.services.process import run_worker
    from pubsub.services.worker import Worker

    worker = Worker(name, bind=bind, kind=kind, handler=handler_of(*work), pair=pairing, **more)
    run_worker(worker, lambda: f"{pairing.role.value} {name} ready: {worker.address}")


def _distribute(pairing: Any, name: str, kind: str, binds: list[str], **keys: Any) -> None:
    """Run a broker or a queue, whose work others do."""
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
