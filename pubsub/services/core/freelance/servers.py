"""The servers of the Freelance patterns: what they are asked is handed out, and each answers whom it was asked by.

Model 1's server is `lazy.ReplyServer`. A server keeps nothing between two requests: a caller that hears nothing asks
again, here or elsewhere, so a request may be done more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pubsub.errors import DecodeError
from pubsub.services.core.freelance.codec import (
    PING,
    PONG,
    Numbered,
    decode_controlled,
    decode_sequenced,
    encode_controlled,
    encode_sequenced,
)
from pubsub.services.core.interface import Asked, BaseCore, Frames, Requested, Send
from pubsub.services.core.lazy import REQUESTS_MAX


class _Wire(NamedTuple):
    """How a request and its reply look; `decode` raises DecodeError."""

    decode: Callable[[Sequence[bytes]], Numbered]
    encode: Callable[[Numbered, Frames], Frames]


class NumberedServer(BaseCore):
    """What the two have in common. A `WorkerCore`."""

    def __init__(self, wire: _Wire, port: str, name: str) -> None:
        super().__init__()
        self._wire, self._port, self._name = wire, port, name
        self._count = 0
        self._requests: dict[int, tuple[bytes, Numbered, list[bytes]]] = {}

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A request came."""
        try:
            request = self._wire.decode(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        self._count += 1
        self._requests[self._count] = peer, request._replace(body=()), []
        self._events.append(Requested(self._count, request.body))

    def reads(self, port: str) -> bool:
        """Whether more requests are taken."""
        return len(self._requests) < REQUESTS_MAX

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """To call this service takes the right to."""
        return Asked("call", self._name)

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request."""
        taken = self._requests.pop(token, None)
        if taken is not None:
            peer, request, parts = taken
            self._sends.append(Send(self._port, peer, self._wire.encode(request, (*parts, *body))))
            self.counters["replied"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the answer for `reply`: the wire knows whole ones only."""
        if token in self._requests:
            self._requests[token][2].extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """No reply: the wire has none that says so, and the caller asks another server."""
        if self._requests.pop(token, None) is not None:
            self.counters["failed"] += 1


class SequencedServer(NumberedServer):
    """Model 2's server: the sequence comes back before the reply (the Guide, chapter 4, *Model Two*).

    Args:
        port: by which it listens.
        name: of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        wire = _Wire(decode_sequenced, lambda asked, body: encode_sequenced(asked.control, body, asked.envelope))
        super().__init__(wire, port, name)


class TrackedServer(NumberedServer):
    """Model 3's server: it answers PING at once, busy or not, so that callers know that it is there (RFC 10).

    Args:
        port: by which it listens.
        name: of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        wire = _Wire(decode_controlled, lambda asked, body: encode_controlled(asked.control, body))
        super().__init__(wire, port, name)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A PING or a request came; one that is too many is dropped."""
        if len(frames) == 1 and frames[0] == PING:
            self._sends.append(Send(self._port, peer, (PONG,)))
            self.counters["pinged"] += 1
        elif super().reads(port):
            super().receive(port, peer, frames, now)
        else:
            self.counters["busy"] += 1

    def reads(self, port: str) -> bool:
        """Always, as a PING may be next."""
        return True
