"""The server of reliable HTTP: the bounds of its connections, and where it listens."""

from __future__ import annotations

import http
from typing import Any, Final

from pubsub.base.listening import Listening, listen_at
from pubsub.web.connections import Limits
from pubsub.web.problems import encoded
from pubsub.web.serving import HttpServer, Tls

CONNECTIONS_MAX: Final = 1_000
"""Connections at the same time. One more closes the one that is idle for longest; where none is, it is answered 503."""

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


def listen(address: str, *, insecure: bool) -> Listening:
    """A socket that listens.

    Args:
        address: HOST:PORT; port 0: one that is free.
        insecure: others than this machine may reach it.

    Raises:
        ConfigurationError: others would reach it, or the address cannot be used.
    """
    return listen_at(address, insecure=insecure, remedy="give tokens, or say --insecure (insecure=True)")


def make_server(
    app: Any, listening: Listening, tls: Tls | None = None, limits: Limits = LIMITS, *, owns_loop: bool = False
) -> HttpServer:
    """A server of an application that has a lifespan; as `HttpServer`."""
    return HttpServer(app, listening, limits, _problem, lifespan=True, tls=tls, owns_loop=owns_loop)


def _problem(status: int, detail: str) -> bytes:
    return encoded(status, http.HTTPStatus(status).phrase, detail)
