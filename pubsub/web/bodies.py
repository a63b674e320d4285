"""Reading request bodies: decoded, with a limit on bytes and on time.

The rule is docs/explanation/gateway.md, H12.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pubsub.web.coding import CODINGS, Corrupt, Decoder, coding_of
from pubsub.web.headers import value
from pubsub.web.problems import Refused

Fields = Sequence[tuple[bytes, bytes]]

_CLOSE = {"connection": "close"}


class BodyGone(Exception):
    """The connection ended before the body was complete."""


class Held:
    """Total bytes of the bodies that all requests of a server hold.

    Args:
        bytes_max: limit at any time.

    Attributes:
        bytes: held now; refused: requests answered 413 or 503 because of their size.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = self.refused = 0

    def add(self, count: int) -> None:
        """Count more held bytes.

        Raises:
            Refused: the limit is reached.
        """
        if self.bytes + count > self._bytes_max:
            self.refused += 1
            raise Refused(503, "The server holds as many bytes of request bodies as it may; try again.", _CLOSE)
        self.bytes += count

    def release(self, count: int) -> None:
        self.bytes -= count


def is_coded(fields: Fields) -> bool:
    return bool(coding_of(value(fields, "content-encoding")))


class _Body:
    """A request body while it arrives.

    Args:
        limit: bytes, both as received and decoded; held: counts the decoded bytes.

    Raises:
        Refused: the content coding is unknown, or Content-Length is above the limit.
    """

    def __init__(self, fields: Fields, limit: int, held: Held) -> None:
        self._fields, self._limit, self._held = fields, limit, held
        self._announced = value(fields, "content-length")
        if self._announced and (not self._announced.isdecimal() or int(self._announced[:20]) > limit):
            raise self._too_large()
        coding = coding_of(value(fields, "content-encoding"))
        if coding is None:
            detail = f"The Content-Encoding is unknown; use {CODINGS}, or leave the header out."
            raise Refused(415, detail, {"accept-encoding": CODINGS})
        self._coding, self._decoder = coding, Decoder(coding) if coding else None
        self._came = self.size = 0
        self.found: list[bytes] = []

    async def add(self, piece: bytes) -> None:
        self._came += len(piece)
        if self._came > self._limit:
            raise self._too_large()
        if self._decoder is None:
            self._keep(piece)
            return
        try:
            for decoded in self._decoder.feed(piece):
                self._keep(decoded)
                await asyncio.sleep(0)  # Other requests run while a large body is decoded.
        except Corrupt as error:
            raise self._corrupt(error) from None

    def _keep(self, piece: bytes) -> None:
        if self.size + len(piece) > self._limit:
            raise self._too_large()
        self._held.add(len(piece))
        self.size += len(piece)
        self.found.append(piece)

    def finish(self) -> None:
        self._check_usable()
        if self._decoder is not None and self._came:
            try:
                self._decoder.finish()
            except Corrupt as error:
                raise self._corrupt(error) from None

    def _too_large(self) -> Refused:
        # The connection stays open and the rest is read and dropped, so that the sender reads the reason
        # (RFC 9112, 9.6).
        self._held.refused += 1
        return Refused(413, f"The body is too large; the limit is {self._limit:,} bytes.")

    def _corrupt(self, error: Corrupt) -> Refused:
        return Refused(400, f"The body does not match its Content-Encoding, {self._coding}: {error}.")

    def _check_usable(self) -> None:
        """Reject a request if the server lost its body.

        uvicorn on httptools passes on an empty body if a request offers an upgrade (docs/http.md, *Reliable requests*).
        An intended empty chunked body looks the same, so it is rejected too. Under h11 neither happens.
        """
        fields = self._fields
        wanted = int(self._announced) > 0 if self._announced else bool(value(fields, "transfer-encoding"))
        if self._came == 0 and wanted and value(fields, "upgrade"):
            lost = "The server lost the body of a request that offers an upgrade: run it with h11 (uvicorn --http h11)."
            raise Refused(501, lost, _CLOSE)


async def read_body(
    receive: Callable[[], Awaitable[Any]],
    fields: Fields,
    limit: int,
    held: Held,
    *,
    silence_seconds: float = math.inf,
    seconds: float = math.inf,
) -> bytes:
    """Read and decode a complete body. Its bytes count as held until the caller releases them.

    Args:
        receive: returns the next ASGI message.
        fields: the request's header fields.
        limit: bytes of the body, both as received and decoded.
        held: counts them.
        silence_seconds: longest wait for each piece; seconds: longest wait for all of it.

    Raises:
        Refused: the body is too large, there is no room for it, it arrives too slowly, its content coding is unknown or
            does not match, or the server lost it.
        BodyGone: the sender has disconnected.
    """
    body = _Body(fields, limit, held)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        async with asyncio.timeout_at(min(end, loop.time() + silence_seconds)) as timer:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BodyGone
                more = message.get("more_body", False)
                await body.add(message.get("body", b""))
                if more:
                    timer.reschedule(min(end, loop.time() + silence_seconds))
        body.finish()
    except TimeoutError:
        held.release(body.size)
        said = f"The body was not complete within {seconds:g} s"
        if timer.when() != end:
            said = f"No byte of the body arrived for {silence_seconds:g} s"
        raise Refused(408, f"{said}.", _CLOSE) from None
    except BaseException:
        held.release(body.size)
        raise
    return body.found[0] if len(body.found) == 1 else b"".join(body.found)
