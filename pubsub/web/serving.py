"""uvicorn as this project runs it: on h11, with limited connections, on a socket that is already bound."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from pubsub.base.addresses import join_place
from pubsub.base.listening import ACCEPTS_MAX, Listening, quiet
from pubsub.base.resources import allow_connections
from pubsub.base.supervision import OFF, Watchdog
from pubsub.errors import ConfigurationError
from pubsub.web.connections import Connection, Limits, Room

STOP_SECONDS: Final = 5
"""Time for open requests when the server stops."""


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: str
    key: str | None = None


def prepare_process() -> None:
    """Allow this process many connections, and keep the log lines of libraries, which contain URLs, out of its log."""
    for name in ("httpx2", "httpcore2", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    allow_connections()


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on the running event loop.

    Args:
        app: the application.
        listening: a bound socket; closed when the server has stopped.
        limits: of its connections.
        problem: makes the body of an error response from its status and a sentence.
        lifespan: the application handles ASGI's lifespan events.
        tls: for HTTPS.
        owns_loop: the event loop runs only this server. Its error handler is then set, and systemd's watchdog is fed.
        stopping: called when the server begins to stop.
    """

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        limits: Limits,
        problem: Callable[[int, str], bytes],
        *,
        lifespan: bool = False,
        tls: Tls | None = None,
        owns_loop: bool = False,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self.room = Room(limits, problem)
        self._listening, self._tls, self._owns_loop, self._stopping = listening, tls, owns_loop, stopping
        self.watchdog = Watchdog() if owns_loop else OFF
        self._task: asyncio.Task[None] | None = None
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on" if lifespan else "off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ssl_certfile=tls.certificate if tls else None,
                ssl_keyfile=tls.key if tls else None,
            )
        )

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{join_place(*self.address)}"

    async def run_process(self, ready: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT. A second SIGINT drops open requests; a third one raises KeyboardInterrupt.

        Args:
            ready: called with the URL once the server listens.

        Raises:
            ConfigurationError: as `start`.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            await self.start()
            ready(self.url)
            await self.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _signalled(self, number: int) -> None:
        self.force_exit |= self.should_exit and number == signal.SIGINT
        self.stop_soon()

    async def start(self) -> None:
        """Begin to serve. If the caller is cancelled meanwhile, the port is free again afterwards.

        Raises:
            ConfigurationError: the certificate cannot be used, or the application does not start.
        """
        starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(ConfigurationError):
                await starting  # Only a started server can stop cleanly.
                await self.stop()
            raise

    async def _start(self) -> None:
        try:
            await self._listen()
        except (OSError, ValueError) as error:
            self._listening.close()
            raise ConfigurationError(f"the application cannot be served: {error}") from None
        except ConfigurationError:
            self._listening.close()
            raise
        self._task = asyncio.create_task(self._go_on())

    async def _listen(self) -> None:
        """Listen as uvicorn does, but limit a TLS handshake to the time for a request's headers."""
        loop, config = asyncio.get_running_loop(), self.config
        config.load()
        self.lifespan = config.lifespan_class(config)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise ConfigurationError("the application did not start; see its log")
        if self._owns_loop:
            quiet(loop)
        if isinstance(self._listening, Listening):
            self._listening.shed = self.room.shed

        def make() -> asyncio.Protocol:
            return Connection(config, self.server_state, self.lifespan.state, room=self.room)

        patience = self.room.limits.header_seconds if config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                make, sock=self._listening, ssl=config.ssl, backlog=ACCEPTS_MAX, ssl_handshake_timeout=patience
            )
        ]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Feed systemd's watchdog; called ten times a second on the event loop."""
        self.watchdog.turned(time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop once open requests are answered."""
        self.watchdog.stopping()
        await super().shutdown(sockets)

    async def _go_on(self) -> None:
        await self.main_loop()
        await self.shutdown([self._listening])

    async def wait(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)

    def stop_soon(self) -> None:
        self.should_exit = True
        self._stopping()

    async def stop(self) -> None:
        self.stop_soon()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        self._listening.close()
