"""How a request's body is read: decoded, never more than the limit, and with bounded patience."""

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
    """The connection ended in the midst of a body."""


class Held:
    """Bytes of bodies that all requests of a server hold together.

    Args:
        bytes_max: at the same time.

    Attributes:
        bytes: now; refused: requests that were answered 413 or 503 for their size.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = self.refused = 0

    def add(self, count: int) -> None:
        """Hold so many more.

        Raises:
            Refused: there is no room.
        """
        if self.bytes + count > self._bytes_max:
            self.refused += 1
            raise Refused(503, "As many bytes of bodies are held as may be; try again.", _CLOSE)
        self.bytes += count

    def release(self, count: int) -> None:
        """Hold so many less."""
        self.bytes -= count


def is_coded(fields: Fields) -> bool:
    """Whether a body has to be decoded."""
    return bool(coding_of(value(fields, "content-encoding")))


class _Body:
    """A body that comes.

    Args:
        limit: bytes, as it comes and decoded; held: counts those that are decoded.

    Raises:
        Refused: its coding is not known, or its sender announces more than the limit.
    """

    def __init__(self, fields: Fields, limit: int, held: Held) -> None:
        self._fields, self._limit, self._held = fields, limit, held
        self._announced = value(fields, "content-length")
        if self._announced and (not self._announced.isdecimal() or int(self._announced[:20]) > limit):
            raise self._too_large()
        coding = coding_of(value(fields, "content-encoding"))
        if coding is None:
            raise Refused(415, f"Content-Encoding is {CODINGS}, or left out.", {"accept-encoding": CODINGS})
        self._coding, self._decoder = coding, Decoder(coding) if coding else None
        self._came = self.size = 0
        self.found: list[bytes] = []

    async def add(self, piece: bytes) -> None:
        """A piece has come."""
        self._came += len(piece)
        if self._came > self._limit:
            raise self._too_large()
        if self._decoder is None:
            self._keep(piece)
            return
        try:
            for decoded in self._decoder.feed(piece):
                self._keep(decoded)
                await asyncio.sleep(0)  # Others get their turn while a large body is decoded.
        except Corrupt as error:
            raise self._corrupt(error) from None

    def _keep(self, piece: bytes) -> None:
        if self.size + len(piece) > self._limit:
            raise self._too_large()
        self._held.add(len(piece))
        self.size += len(piece)
        self.found.append(piece)

    def finish(self) -> None:
        """See that it is whole."""
        self._check_whole()
        if self._decoder is not None and self._came:
            try:
                self._decoder.finish()
            except Corrupt as error:
                raise self._corrupt(error) from None

    def _too_large(self) -> Refused:
        # The connection is not closed: while the rest is read and thrown away, the sender can read why (RFC 9112, 9.6).
        self._held.refused += 1
        return Refused(413, f"A body may have {self._limit:,} bytes.")

    def _corrupt(self, error: Corrupt) -> Refused:
        return Refused(400, f"The body is not in its Content-Encoding, {self._coding}: {error}.")

    def _check_whole(self) -> None:
        """See that the server has not lost the body.

        uvicorn on httptools hands on an empty body where a request offers an upgrade (docs/http.md, *Reliable
        requests*). An empty chunked body that is meant cannot be told from that one, so it is refused as well; under
        h11 neither is.
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
    """Read a body whole and decode it; as many bytes as it has are held until its reader releases them.

    Args:
        receive: the next message of ASGI.
        fields: the request's header fields.
        limit: bytes of the body, as it comes and decoded.
        held: counts them.
        silence_seconds: patience with each piece; seconds: with all of it.

    Raises:
        Refused: it is too large, there is no room for it, it comes too slowly, it is in no coding that is known, not in
            its coding, or was lost by the server.
        BodyGone: its sender is gone.
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
        said = f"All of the body did not come within {seconds:g} s"
        if timer.when() != end:
            said = f"Nothing of the body came for {silence_seconds:g} s"
        raise Refused(408, f"{said}.", _CLOSE) from None
    except BaseException:
        held.release(body.size)
        raise
    return body.found[0] if len(body.found) == 1 else b"".join(body.found)
