"""ASGI in small: what of a request is read, how much of it at most, and how an answer goes out."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final

from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.limits import HEADERS_BYTES_MAX, HEADERS_MAX
from pubsub.web.bodies import BodyGone, BodyRefused, is_coded, pieces
from pubsub.web.headers import doubled

Scope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend = Callable[[MutableMapping[str, Any]], Awaitable[None]]


_LEFT_OUT: Final = frozenset(
    {"authorization", "cookie", "connection", "content-encoding", "transfer-encoding", "upgrade"}
)


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


def check_single(scope: Scope) -> None:
    """See that no header field comes twice of which a request has one.

    Raises:
        BadRequest: one does.
    """
    if name := doubled(scope["headers"]):
        raise BadRequest(problem(400, f"{name} is given twice", "a request has one"))


def kept_headers(scope: Scope) -> dict[str, str]:
    """The header fields that are stored with a request; what names a client, or how the body came, is not.

    Raises:
        BadRequest: they are too many, or too large.
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
            raise BadRequest(problem(431, f"more than {HEADERS_MAX} headers, or {HEADERS_BYTES_MAX:,} bytes of them"))
    return kept


async def read_body(receive: ASGIReceive, scope: Scope, limit: int, seconds: float) -> bytes:
    """The whole body, decoded.

    Args:
        receive, scope: of the request; limit: in bytes; seconds: patience.

    Raises:
        BadRequest: it is larger, too slow, or cannot be decoded; Disconnected: it never became whole.
    """
    found: list[bytes] = []
    try:
        async with asyncio.timeout(seconds), aclosing(pieces(receive, scope["headers"], limit)) as coming:
            async for piece in coming:
                found.append(piece)
    except BodyGone:
        raise Disconnected from None
    except BodyRefused as error:
        answer = problem(error.status, http.HTTPStatus(error.status).phrase, error.reason)
        raise BadRequest(Answer(error.status, {**answer.headers, **error.headers}, answer.body)) from None
    except TimeoutError:
        raise BadRequest(problem(408, f"the body did not come within {seconds:g} s")) from None
    return b"".join(found)


async def respond(send: ASGISend, answer: Answer) -> None:
    """Send an answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    if answer.status != 204:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if answer.status != 204 else b""})
