"""The gateway as a process: a socket, uvicorn on it, and a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import disable_created_metrics

from pubsub.base.clock import SystemClock, valid_wall
from pubsub.base.listening import Listening, listen_at
from pubsub.base.sites import Sites
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.gateway.app import Gateway
from pubsub.gateway.handlers.look_back import Reads
from pubsub.gateway.handlers.operations import Operations
from pubsub.gateway.handlers.peeking import Peek
from pubsub.gateway.limits import CONNECTIONS_MAX, HEADER_BYTES_MAX, KEEP_ALIVE_SECONDS
from pubsub.gateway.problems import OF_STATUS, body
from pubsub.gateway.reports import Gather
from pubsub.web.connections import Limits
from pubsub.web.serving import HttpServer, Tls, prepare_process
from pubsub.web.tokens import Users, read_users

THREADS: Final = 16
"""Threads that wait for disks and for reports of the cluster."""

TOKENS_LOOK_SECONDS: Final = 0.5
"""Poll interval of the token file: a revoked token loses its streams within a second."""

LIMITS: Final = Limits(CONNECTIONS_MAX, HEADER_BYTES_MAX, KEEP_ALIVE_SECONDS)
"""Limits of the gateway's connections."""

_log: Final = logging.getLogger("pubsub.gateway")


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        bind: HOST:PORT; port 0: a free one.
        directory: state directory; one gateway at a time.
        tokens: token file; None: every request has all rights.
        insecure: allow other hosts to connect, although there are no tokens.
        certificate, private_key: files for TLS; None: no TLS.
        allow_hosts: further names of this gateway, also accepted as origins; "*": any name, as with tokens.
        allow_origins: origins of other sites whose pages may send requests.
    """

    bind: str
    directory: Path
    tokens: Path | None = None
    insecure: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()


def sites_of(settings: GatewaySettings) -> Sites:
    """Return the accepted hosts and origins. With tokens any host is accepted: no browser adds a token by itself.

    Raises:
        ConfigurationError: a name is not valid.
    """
    bound = settings.bind.rpartition(":")[0]
    any_host = settings.tokens is not None
    try:
        return Sites.of(settings.allow_hosts, settings.allow_origins, bound=bound, any_host=any_host)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def listen(settings: GatewaySettings) -> Listening:
    """Return the listening socket.

    Raises:
        ConfigurationError: the address is malformed or in use, or other hosts could connect without a token.
    """
    insecure = settings.insecure or settings.tokens is not None
    remedy = "name a token file by --tokens FILE, or allow this by --insecure"
    return listen_at(settings.bind, insecure=insecure, option="--bind", remedy=remedy)


def run_gateway(
    settings: GatewaySettings,
    clients: ClientSettings,
    gather: Gather,
    operations: Operations,
    peek: Peek,
    reads: Reads,
    ready: Callable[[str], None],
) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Args:
        settings: of the gateway; clients: of its clients.
        gather: asks the cluster for its report; operations: carries out requests of operators.
        peek, reads: read messages without a subscription.
        ready: called with the URL once the gateway listens.

    Raises:
        ConfigurationError, StorageError: the gateway cannot start.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    prepare_process()
    valid_wall(SystemClock().wall())  # Check the clock before anything is written.
    users, allowed = _users(settings.tokens), sites_of(settings)
    listening = listen(settings)
    with contextlib.closing(listening):
        asyncio.run(
            _serve(
                settings,
                lambda: Gateway(clients, settings.directory, users, gather, operations, peek, reads, allowed),
                listening,
                ready,
            )
        )


def _users(path: Path | None) -> Users:
    return Users() if path is None else read_users(path)


async def _serve(
    settings: GatewaySettings, make: Callable[[], Gateway], listening: Listening, ready: Callable[[str], None]
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "gateway"))
    gateway = make()
    certificate, key = settings.certificate, settings.private_key
    tls = Tls(str(certificate), str(key) if key else None) if certificate else None
    server = HttpServer(gateway, listening, LIMITS, _problem, tls=tls, owns_loop=True, stopping=gateway.stopping.set)
    await gateway.start()
    watching = asyncio.create_task(_watch(gateway, settings.tokens))
    try:
        await server.run_process(ready)
    finally:
        watching.cancel()
        gateway.stopping.set()
        await gateway.close()


def _problem(status: int, reason: str) -> bytes:
    return body(OF_STATUS[status], reason)


async def _watch(gateway: Gateway, path: Path | None) -> None:
    """Read the token file again when it changes; a file with an error changes nothing."""
    if path is None:
        return
    seen: tuple[int, ...] = ()  # The file may have changed since the start.
    while True:
        await asyncio.sleep(TOKENS_LOOK_SECONDS)
        now = _stamp(path)
        if now == seen:
            continue
        seen = now
        try:
            gateway.sessions.users = read_users(path)
        except ConfigurationError as error:
            _log.error("the token file cannot be used, so the previous tokens stay valid: %s", error)


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
