"""How a request's body is read: in pieces, decoded, and never more than the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from pubsub.web.coding import CODINGS, Corrupt, Decoder, coding_of
from pubsub.web.headers import value

Fields = Sequence[tuple[bytes, bytes]]


class BodyRefused(Exception):
    """A body that is not taken.

    Attributes:
        status: of the answer: 400, 413, 415 or 501.
        reason: one sentence, for a person.
        headers: more of the answer.
    """

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}
        super().__init__(status, reason)


class BodyGone(Exception):
    """The connection ended in the midst of a body."""


def is_coded(fields: Fields) -> bool:
    """Whether a body has to be decoded."""
    return bool(coding_of(value(fields, b"content-encoding")))


async def pieces(receive: Callable[[], Awaitable[Any]], fields: Fields, limit: int) -> AsyncGenerator[bytes, None]:
    """A body's pieces, decoded.

    Args:
        receive: the next message of ASGI.
        fields: the request's header fields.
        limit: bytes of the body, as it comes and decoded.

    Raises:
        BodyRefused: it is too large, in no coding that is known, not in its coding, or was lost by the server.
        BodyGone: its sender is gone.
    """
    announced = value(fields, b"content-length")
    # The connection is not closed: while the rest is read and thrown away, the sender can read why (RFC 9112, 9.6).
    too_large = BodyRefused(413, f"A body may have {limit:,} bytes.")
    if announced and (not announced.isdecimal() or int(announced[:20]) > limit):
        raise too_large
    coding = coding_of(value(fields, b"content-encoding"))
    if coding is None:
        raise BodyRefused(415, f"Content-Encoding is {CODINGS}, or left out.", accept_encoding=CODINGS)
    decoder = Decoder(coding) if coding else None
    came = size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        came += len(piece)
        if came > limit:
            raise too_large
        if decoder is None:
            yield piece
            continue
        try:
            for decoded in decoder.feed(piece):
                size += len(decoded)
                if size > limit:
                    raise too_large
                yield decoded
                await asyncio.sleep(0)  # Others get their turn while a large body is decoded.
        except Corrupt as error:
            raise _corrupt(coding, error) from None
    _check_whole(fields, announced, came)
    if decoder is not None and came:
        try:
            decoder.finish()
        except Corrupt as error:
            raise _corrupt(coding, error) from None


def _corrupt(coding: str, error: Corrupt) -> BodyRefused:
    return BodyRefused(400, f"The body is not in its Content-Encoding, {coding}: {error}.")


def _check_whole(fields: Fields, announced: str, came: int) -> None:
    """See that the server has not lost the body.

    uvicorn on httptools hands on an empty body where a request offers an upgrade (docs/http.md, *Reliable requests*).
    An empty chunked body that is meant cannot be told from that one, so it is refused as well; under h11 neither is.

    Raises:
        BodyRefused: it may have.
    """
    wanted = int(announced) > 0 if announced else bool(value(fields, b"transfer-encoding"))
    if came == 0 and wanted and value(fields, b"upgrade"):
        raise BodyRefused(
            501,
            "The server lost the body of a request that offers an upgrade: run it with h11 (uvicorn --http h11).",
            connection="close",
        )
