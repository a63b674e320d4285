"""The server of reliable HTTP: on a socket bound before, so that what is in its way is said in one line."""

from __future__ import annotations

import asyncio
import http
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from pubsub.base.addresses import is_loopback as is_loopback  # noqa: PLC0414  the receiver asks it of its peers
from pubsub.base.addresses import join_place, split_place
from pubsub.base.listening import Listening
from pubsub.errors import ConfigurationError
from pubsub.http.core.answers import problem
from pubsub.web.connections import Limits
from pubsub.web.serving import HttpServer

CONNECTIONS_MAX: Final = 1_000
"""Connections at the same time. One more closes the one that is idle for longest; where none is, it is answered 503."""

STOP_SECONDS: Final = 5
"""Patience with requests under way when a server stops; their senders try again."""

HEADER_SECONDS: Final = 10.0
"""From a connection's or a request's first byte until its headers are whole; then it is closed."""

IDLE_SECONDS: Final = 30.0
"""A connection that asks for nothing more is kept so long."""

WRITE_SECONDS: Final = 60.0
"""A connection whose peer takes nothing of its answer is kept so long."""

HEADER_BYTES_MAX: Final = 64 * 1024
"""Bytes of a request's line and header fields; beyond it 431."""

HEADER_FIELDS_MAX: Final = 100
"""Header fields of a request; beyond it 431."""

LIMITS: Final = Limits(
    CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_FIELDS_MAX, HEADER_SECONDS, IDLE_SECONDS, WRITE_SECONDS
)
"""Of the connections of one server."""


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
        made = Listening(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be used: {error.strerror or error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ConfigurationError(f"{place} cannot be used: {error.strerror or error}") from None
    return made


class _HttpServer(HttpServer):
    """Leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _problem(status: int, detail: str) -> bytes:
    return problem(status, http.HTTPStatus(status).phrase, detail).body


class Server:
    """An application that is served on the running event loop.

    Args:
        app: an ASGI application, with a lifespan.
        listening: the socket.
        tls: for HTTPS.
        limits: of its connections.
        owns_loop: whether the event loop is this server's own.
    """

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        tls: Tls | None = None,
        limits: Limits = LIMITS,
        *,
        owns_loop: bool = False,
    ) -> None:
        self._socket, self._tls = listening, tls
        self._server = _HttpServer(
            app,
            limits,
            _problem,
            stop_seconds=STOP_SECONDS,
            lifespan=True,
            certificate=tls.certificate if tls else None,
            key=tls.key if tls else None,
            owns_loop=owns_loop,
        )
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
