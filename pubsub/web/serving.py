"""uvicorn as this project runs it: on h11, with connections that are bounded, on a socket that was bound before."""

from __future__ import annotations

import asyncio
import functools
import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from pubsub.base.listening import ACCEPTS_MAX, Listening, quiet
from pubsub.base.supervision import OFF, Watchdog
from pubsub.errors import ConfigurationError
from pubsub.web.connections import Connection, Limits, Room


class HttpServer(uvicorn.Server):
    """A server.

    Args:
        app: an ASGI application.
        limits: of its connections.
        problem: the body of an answer that says why not, from its status and a sentence.
        stop_seconds: patience with requests under way when it stops.
        lifespan: whether the application has one.
        certificate, key: files in PEM, for HTTPS.
        owns_loop: whether the event loop runs nothing but this server, so that it may be told what it logs,
            and systemd that it turns.

    Raises:
        OSError, ValueError: the certificate cannot be used.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        problem: Callable[[int, str], bytes],
        *,
        stop_seconds: int,
        lifespan: bool = False,
        certificate: str | None = None,
        key: str | None = None,
        owns_loop: bool = False,
    ) -> None:
        self.room = Room(limits, problem)
        self._owns_loop = owns_loop
        self.watchdog = Watchdog() if owns_loop else OFF
        protocol: Any = functools.partial(Connection, room=self.room)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="on" if lifespan else "off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=stop_seconds,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on sockets: as uvicorn does, but that a TLS handshake has no longer than a request's headers.

        Raises:
            ConfigurationError: the application does not start.
        """
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise ConfigurationError("the application did not start; its log says why")
        loop, config = asyncio.get_running_loop(), self.config
        if self._owns_loop:
            quiet(loop)

        def make() -> asyncio.Protocol:
            protocol: Any = config.http_protocol_class
            made: asyncio.Protocol = protocol(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        patience = self.room.limits.header_seconds if config.ssl is not None else None
        self.servers = []
        for listening in sockets or ():
            if isinstance(listening, Listening):
                listening.shed = self.room.shed
            server = await loop.create_server(
                make, sock=listening, ssl=config.ssl, backlog=ACCEPTS_MAX, ssl_handshake_timeout=patience
            )
            self.servers.append(server)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second on the event loop: report that it turns."""
        self.watchdog.turned(time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in order, once requests under way are answered."""
        self.watchdog.stopping()
        await super().shutdown(sockets)
