"""uvicorn, as reliable HTTP runs it: on a socket bound before, so that what is in its way is said in one line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from pubsub.base.addresses import is_loopback as is_loopback  # noqa: PLC0414  the receiver asks it of its peers
from pubsub.base.addresses import join_place, split_place
from pubsub.errors import ConfigurationError

CONNECTIONS_MAX: Final = 1_000
"""Connections and requests that are served at one time; one more is answered 503."""

BACKLOG: Final = 256
"""Connections that wait to be accepted."""

STOP_SECONDS: Final = 5
"""Patience with requests under way when a server stops; their senders try again."""

IDLE_SECONDS: Final = 30
"""A connection that asks for nothing is kept so long."""

HEADER_BYTES_MAX: Final = 64 * 1024
"""Bytes of a request's line and header fields, which are read before anything is looked at."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate and key of a server, as files in PEM."""

    certificate: str
    key: str | None = None


def split_bind(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address is in brackets.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return split_place(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def listening_socket(host: str, port: int, *, insecure: bool) -> socket.socket:
    """A socket that listens.

    Args:
        host, port: where; port 0: a free one; insecure: others than this machine may reach it.

    Raises:
        ConfigurationError: others would reach it, or the address cannot be used.
    """
    place = join_place(host, port)
    if not insecure and not is_loopback(host):
        raise ConfigurationError(
            f"{place} is reached by others than this machine, who could ask for anything: give tokens, or say "
            "--insecure (insecure=True)"
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be used: {error.strerror or error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ConfigurationError(f"{place} cannot be used: {error.strerror or error}") from None
    return made


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs it, and the process alive where the application does not start."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            raise ConfigurationError("the application did not start; its log says why") from None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """An application that is served on the running event loop.

    Args:
        app: an ASGI application, with a lifespan.
        listening: the socket.
        tls: for HTTPS.
    """

    def __init__(self, app: Any, listening: socket.socket, tls: Tls | None = None) -> None:
        self._socket, self._tls = listening, tls
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
        )
        self._server = _Uvicorn(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Serve from now on. Where the caller is cancelled meanwhile, the port is free again afterwards.

        Raises:
            ConfigurationError: it cannot: a certificate is no good, say.
        """
        starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(ConfigurationError):
                await starting  # uvicorn stops in order once it has started, and not before.
                await self.stop()
            raise

    async def _start(self) -> None:
        try:
            self._server.config.load()
        except (OSError, ValueError) as error:
            self._socket.close()
            raise ConfigurationError(f"this cannot be served: {error}") from None
        self._task = asyncio.get_running_loop().create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._task.done():  # uvicorn has no event for it.
            await asyncio.sleep(0.01)
        if self._task.done():
            self._socket.close()
            failed = self._task.exception()
            raise failed or ConfigurationError("the application did not start; its log says why")

    async def wait(self) -> None:
        """Until it has stopped."""
        assert self._task is not None
        await asyncio.shield(self._task)

    def stop_soon(self) -> None:
        """Begin to stop."""
        self._server.should_exit = True

    async def stop(self) -> None:
        """Stop in order."""
        self.stop_soon()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        self._socket.close()
