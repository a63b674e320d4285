"""ASGI in small: what of a request is read, how much of it at most, and how an answer goes out."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any, Final

from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.limits import HEADERS_BYTES_MAX, HEADERS_MAX
from pubsub.web.bodies import is_coded
from pubsub.web.problems import Refused

Scope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend = Callable[[MutableMapping[str, Any]], Awaitable[None]]


_LEFT_OUT: Final = frozenset(
    {"authorization", "cookie", "connection", "content-encoding", "transfer-encoding", "upgrade"}
)


def kept_headers(scope: Scope) -> dict[str, str]:
    """The header fields that are stored with a request; what names a client, or how the body came, is not.

    Raises:
        Refused: they are too many, or too large.
    """
    kept: dict[str, str] = {}
    left_out = _LEFT_OUT | ({"content-length"} if is_coded(scope["headers"]) else set())
    size = 0
    for found, value in scope["headers"]:
        name = found.decode("latin-1").lower()
        if name in left_out:
            continue
        size += len(found) + len(value)
        text = value.decode("latin-1")
        kept[name] = f"{kept[name]}, {text}" if name in kept else text
        if len(kept) > HEADERS_MAX or size > HEADERS_BYTES_MAX:
            raise Refused(431, f"A request has {HEADERS_MAX} headers at most, and {HEADERS_BYTES_MAX:,} bytes of them.")
    return kept


def refusal(refused: Refused) -> Answer:
    """The answer to a request that is refused."""
    answer = problem(refused.status, http.HTTPStatus(refused.status).phrase, refused.detail)
    return replace(answer, headers={**answer.headers, **refused.headers})


async def respond(send: ASGISend, answer: Answer) -> None:
    """Send an answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    if answer.status != 204:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if answer.status != 204 else b""})
