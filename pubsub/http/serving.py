"""The server of reliable HTTP, and where it listens."""

from __future__ import annotations

import http
from typing import Any, Final

from pubsub.base.listening import Listening, listen_at
from pubsub.web.connections import Limits
from pubsub.web.problems import encoded
from pubsub.web.serving import HttpServer, Tls

LIMITS: Final = Limits(connections_max=1_000, header_bytes_max=64 * 1024, idle_seconds=30.0)
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
