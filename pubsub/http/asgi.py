"""Small ASGI parts: headers that are stored, error responses, sending a response."""

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
    """Return the header fields that are stored with a request, without those about the connection or credentials.

    Raises:
        Refused: there are too many, or they are too large.
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
            limits = f"{HEADERS_MAX} headers and {HEADERS_BYTES_MAX:,} bytes"
            raise Refused(431, f"The request's headers are too large; the limits are {limits}.")
    return kept


def refusal(refused: Refused) -> Answer:
    answer = problem(refused.status, http.HTTPStatus(refused.status).phrase, refused.detail)
    return replace(answer, headers={**answer.headers, **refused.headers})


async def respond(send: ASGISend, answer: Answer) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    if answer.status != 204:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if answer.status != 204 else b""})
