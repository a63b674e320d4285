"""Reading the body of a response, so that surplus bytes never reach the next response of the same connection.

A peer that answers twice, or sends a body after 204, leaves extra bytes on the connection. httpcore would read them as
the response to the next request, so a rejected message would count as delivered (encode/httpx#1474). Such a connection
is closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from pubsub.base.urls import scrubbed

REASON_LENGTH_MAX: Final = 200
"""Characters of an error's text."""

_PARSER: Final = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")
"""Attributes from a response to its connection's parser. If a release renames one, no connection is used twice."""


async def answer_pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the raw pieces of a response's body. A connection stays usable only if the body is read to its end."""
    stream: Any = answer.stream
    async for piece in stream:
        yield piece
    if _has_more(answer):
        await answer.extensions["network_stream"].aclose()


def reason_of(error: Exception, url: str) -> str:
    """Describe in one line why a request has no response, without the secrets of its URL."""
    text = scrubbed(" ".join(str(error).split()), url)[:REASON_LENGTH_MAX]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _has_more(answer: httpx2.Response) -> bool:
    parser: Any = answer
    for name in _PARSER:
        parser = getattr(parser, name, None)
    return parser is None or bool(parser.trailing_data[0])
