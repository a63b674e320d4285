"""How the body of an answer is read: a connection on which more came than the answer is not used again.

A peer that answers twice, or sends a body behind 204, leaves bytes that httpcore takes for the answer to the next
request on the connection: a message that was refused would count as delivered (encode/httpx#1474).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from pubsub.base.urls import scrubbed

REASON_LENGTH_MAX: Final = 200
"""Characters of an error's own words."""

_PARSER: Final = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")
"""From an answer to the parser of its connection. Where a release has other names, no connection is used twice."""


async def answer_pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """The pieces of an answer's body as they came; read to the end, it leaves a connection that can be used again."""
    stream: Any = answer.stream
    async for piece in stream:
        yield piece
    if _has_more(answer):
        await answer.extensions["network_stream"].aclose()


def reason_of(error: Exception, url: str) -> str:
    """Why a request to a URL has no answer, on one line and without the secrets of the URL."""
    text = scrubbed(" ".join(str(error).split()), url)[:REASON_LENGTH_MAX]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _has_more(answer: httpx2.Response) -> bool:
    parser: Any = answer
    for name in _PARSER:
        parser = getattr(parser, name, None)
    return parser is None or bool(parser.trailing_data[0])
