"""The server of reliable HTTP and its listening socket."""

from __future__ import annotations

import http
from typing import Any, Final

from pubsub.base.listening import Listening, listen_at
from pubsub.web.connections import Limits
from pubsub.web.problems import encoded
from pubsub.web.serving import HttpServer, Tls

LIMITS: Final = Limits(connections_max=1_000, header_bytes_max=64 * 1024, idle_seconds=30.0)
"""Limits of one server's connections."""


def listen(address: str, *, insecure: bool) -> Listening:
    """Return a listening socket.

    Args:
        address: HOST:PORT; port 0: a free one.
        insecure: allow other hosts to connect.

    Raises:
        ConfigurationError: other hosts could connect, or the address cannot be used.
    """
    return listen_at(address, insecure=insecure, remedy="use tokens, or allow this by --insecure (insecure=True)")


def make_server(
    app: Any, listening: Listening, tls: Tls | None = None, limits: Limits = LIMITS, *, owns_loop: bool = False
) -> HttpServer:
    """Return a server for an application with a lifespan; see `HttpServer`."""
    return HttpServer(app, listening, limits, _problem, lifespan=True, tls=tls, owns_loop=owns_loop)


def _problem(status: int, detail: str) -> bytes:
    return encoded(status, http.HTTPStatus(status).phrase, detail)
