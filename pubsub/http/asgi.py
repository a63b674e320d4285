"""ASGI in small: what of a request is read, how much of it at most, and how an answer goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.limits import HEADERS_BYTES_MAX, HEADERS_MAX

Scope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class BadRequest(Exception):
    """A request that is answered at once."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Disconnected(Exception):
    """Whoever asked is gone before the request was whole."""


def header_values(scope: Scope, name: str) -> list[str]:
    """The values of all fields of a name, in lower case."""
    wanted = name.encode()
    return [value.decode("latin-1") for found, value in scope["headers"] if found.lower() == wanted]


def header(scope: Scope, name: str) -> str:
    """The value of the first field of a name; "" for none."""
    return next(iter(header_values(scope, name)), "")


def kept_headers(scope: Scope) -> dict[str, str]:
    """The header fields that are stored with a request; what names a client is not.

    Raises:
        BadRequest: they are too many, or too large.
    """
    kept: dict[str, str] = {}
    size = 0
    for found, value in scope["headers"]:
        name = found.decode("latin-1").lower()
        if name in {"authorization", "cookie", "connection", "transfer-encoding"}:
            continue
        size += len(found) + len(value)
        text = value.decode("latin-1")
        kept[name] = f"{kept[name]}, {text}" if name in kept else text
        if len(kept) > HEADERS_MAX or size > HEADERS_BYTES_MAX:
            raise BadRequest(problem(431, f"more than {HEADERS_MAX} headers, or {HEADERS_BYTES_MAX:,} bytes of them"))
    return kept


async def read_body(receive: ASGIReceive, scope: Scope, limit: int, seconds: float) -> bytes:
    """The whole body.

    Args:
        receive, scope: of the request; limit: in bytes; seconds: patience.

    Raises:
        BadRequest: it is larger, or too slow; Disconnected: it never became whole.
    """
    said = header(scope, "content-length")
    too_large = problem(413, f"the body is larger than {limit:,} bytes")
    if said.isdecimal() and int(said[:20]) > limit:
        raise BadRequest(too_large)
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise BadRequest(too_large)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise BadRequest(problem(408, f"the body did not come within {seconds:g} s")) from None


async def respond(send: ASGISend, answer: Answer) -> None:
    """Send an answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    if answer.status != 204:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if answer.status != 204 else b""})
