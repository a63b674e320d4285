"""The gateway as a process: a socket, uvicorn on it, and an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import disable_created_metrics

from pubsub.base.addresses import join_place, split_place
from pubsub.base.clock import SystemClock, sound_wall
from pubsub.base.listening import Listening
from pubsub.base.loopback import reaches_out
from pubsub.base.resources import allow_connections
from pubsub.base.sites import Sites
from pubsub.base.text import without_mark
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.gateway.app import Gateway
from pubsub.gateway.handlers.operations import Operations
from pubsub.gateway.handlers.peeking import Peek
from pubsub.gateway.limits import (
    CONNECTIONS_MAX,
    HEADER_BYTES_MAX,
    HEADER_FIELDS_MAX,
    HEADER_SECONDS,
    KEEP_ALIVE_SECONDS,
    WRITE_SECONDS,
)
from pubsub.gateway.problems import body
from pubsub.gateway.reports import Gather
from pubsub.gateway.tokens import Users, parse_users
from pubsub.web.connections import Limits
from pubsub.web.serving import HttpServer

STOP_SECONDS: Final = 5
"""Requests that are being answered get so long when the gateway stops."""

THREADS: Final = 16
"""Threads that wait for disks, and for the cluster's report."""

TOKENS_LOOK_SECONDS: Final = 0.5
"""The file of tokens is looked at so often: within a second a token that was revoked has lost its streams too."""

LIMITS: Final = Limits(
    CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_FIELDS_MAX, HEADER_SECONDS, KEEP_ALIVE_SECONDS, WRITE_SECONDS
)
"""Of its connections."""

_PROBLEMS: Final = {
    400: "bad-request",
    431: "headers-too-large",
    501: "not-implemented",
    505: "http-version",
    503: "busy",
}
"""Status of an answer to what is no request -> problem."""

_log: Final = logging.getLogger("pubsub.gateway")


@dataclass(frozen=True)
class GatewaySettings:
    """What a gateway is told.

    Attributes:
        bind: HOST:PORT; port 0: one that is free.
        directory: where its state lives; one gateway at a time.
        tokens: file of who may do what; None: everybody may do everything.
        insecure: it may listen without tokens where others than this host reach it.
        certificate, private_key: files for TLS; None: there is none.
        allow_hosts: names that it may be asked for by besides, and whose pages may ask; "*": any, as where there are
            tokens.
        allow_origins: of other sites, whose pages may ask.
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
    """Whose pages may ask. With tokens any host will do: no browser adds a token by itself.

    Raises:
        ConfigurationError: a name of them is none.
    """
    bound = settings.bind.rpartition(":")[0]
    any_host = settings.tokens is not None
    try:
        return Sites.of(settings.allow_hosts, settings.allow_origins, bound=bound, any_host=any_host)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def listen(settings: GatewaySettings) -> socket.socket:
    """The socket on which it listens.

    Raises:
        ConfigurationError: that is no address, it is taken, or others could reach it without a token.
    """
    try:
        host, port = split_place(settings.bind)
    except ValueError:
        raise ConfigurationError(
            f"--bind is HOST:PORT, as 127.0.0.1:8080 or [::1]:8080, not {settings.bind!r}"
        ) from None
    if reaches_out(f"tcp://{settings.bind}") and settings.tokens is None and not settings.insecure:
        raise ConfigurationError(
            f"{settings.bind} can be reached by others than this host: give a file of tokens (--tokens FILE), or say"
            " --insecure"
        )
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = Listening(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Nagle's algorithm would hold a short answer's second part back until the first is acknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind(place)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {settings.bind}: {error.strerror or error}") from None
    return listening


def read_users(path: Path | None) -> Users:
    """Who may do what.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    if path is None:
        return Users()
    try:
        text = without_mark(path.read_bytes()).decode("ascii")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if mode & 0o022:
        raise ConfigurationError(f"{path}: others may write it: chmod go-w {path}")
    if text and not text.endswith("\n"):
        raise ConfigurationError(f"{path}: its last line has no end, so it may be half written")
    return parse_users(text.splitlines(), str(path))


def run_gateway(
    settings: GatewaySettings,
    clients: ClientSettings,
    gather: Gather,
    operations: Operations,
    peek: Peek,
    ready: Callable[[str], None],
) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Args:
        settings: of the gateway; clients: of its clients.
        gather: asks the cluster for its report; operations: what operators may have done to it.
        peek: looks at messages.
        ready: told the URL once it listens.

    Raises:
        ConfigurationError, StorageError: it cannot begin.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    for noisy in ("uvicorn", "httpx2", "httpcore2"):  # httpx2 writes a line for each delivery, with its URL.
        logging.getLogger(noisy).setLevel(logging.WARNING)
    allow_connections()
    sound_wall(SystemClock().wall())  # Before anything is written.
    users, allowed = read_users(settings.tokens), sites_of(settings)
    listening = listen(settings)
    with contextlib.closing(listening):
        asyncio.run(
            _serve(
                settings,
                lambda: Gateway(clients, settings.directory, users, gather, operations, peek, allowed),
                listening,
                ready,
            )
        )


async def _serve(
    settings: GatewaySettings, make: Callable[[], Gateway], listening: socket.socket, ready: Callable[[str], None]
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "gateway"))
    gateway = make()
    server = _Server(gateway, settings)
    await gateway.start()
    watching = asyncio.create_task(_watch(gateway, settings.tokens))
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.certificate else "http"
    telling = asyncio.create_task(_tell(server, lambda: ready(f"{scheme}://{join_place(host, port)}")))
    try:
        await server.serve(sockets=[listening])
    finally:
        watching.cancel()
        telling.cancel()
        gateway.stopping.set()
        await gateway.close()


class _Server(HttpServer):
    """Tells those who wait that it stops, and leaves signals' after-effects to us.

    Raises:
        ConfigurationError: the certificate cannot be used.
    """

    def __init__(self, gateway: Gateway, settings: GatewaySettings) -> None:
        certificate, key = settings.certificate, settings.private_key
        super().__init__(
            gateway,
            LIMITS,
            lambda status, reason: body(_PROBLEMS.get(status, "bad-request"), reason),
            stop_seconds=STOP_SECONDS,
            certificate=str(certificate) if certificate else None,
            key=str(key) if certificate and key else None,
            owns_loop=True,
        )
        try:
            self.config.load()
        except OSError as error:
            raise ConfigurationError(f"TLS: {error}") from None
        self._stopping = gateway.stopping
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM or SIGINT has come."""
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # Else it would be raised again behind the end, which then is none in order.
        self._loop.call_soon_threadsafe(self._stopping.set)


async def _tell(server: HttpServer, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


async def _watch(gateway: Gateway, path: Path | None) -> None:
    """Take the file of tokens anew when it has changed; one that cannot be used changes nothing."""
    if path is None:
        return
    seen: tuple[int, ...] = ()  # It may have changed since it was read at the start.
    while True:
        await asyncio.sleep(TOKENS_LOOK_SECONDS)
        now = _stamp(path)
        if now == seen:
            continue
        seen = now
        try:
            gateway.sessions.users = read_users(path)
        except ConfigurationError as error:
            _log.error("the tokens read before stay in force: %s", error)


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
