"""The servers of Freelance models 2 and 3: they pass requests to a handler, and send each reply to its caller.

The server of model 1 is `lazy.ReplyServer`. A server keeps nothing between two requests. A caller without a reply asks
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
    """The encoding of requests and replies; `decode` raises DecodeError."""

    decode: Callable[[Sequence[bytes]], Numbered]
    encode: Callable[[Numbered, Frames], Frames]


class NumberedServer(BaseCore):
    """The common part of both servers. A `WorkerCore`."""

    def __init__(self, wire: _Wire, port: str, name: str) -> None:
        super().__init__()
        self._wire, self._port, self._name = wire, port, name
        self._count = 0
        self._requests: dict[int, tuple[bytes, Numbered, list[bytes]]] = {}

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        try:
            request = self._wire.decode(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        self._count += 1
        self._requests[self._count] = peer, request._replace(body=()), []
        self._events.append(Requested(self._count, request.body))

    def reads(self, port: str) -> bool:
        return len(self._requests) < REQUESTS_MAX

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """Return the right to call this service."""
        return Asked("call", self._name)

    def reply(self, token: int, body: Frames, now: float) -> None:
        taken = self._requests.pop(token, None)
        if taken is not None:
            peer, request, parts = taken
            self._sends.append(Send(self._port, peer, self._wire.encode(request, (*parts, *body))))
            self.counters["replied"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the reply for `reply`: the wire has no parts."""
        if token in self._requests:
            self._requests[token][2].extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """Send nothing: the wire has no error reply, and the caller asks another server."""
        if self._requests.pop(token, None) is not None:
            self.counters["failed"] += 1


class SequencedServer(NumberedServer):
    """The server of model 2: it returns the sequence before the reply (the Guide, chapter 4, *Model Two*).

    Args:
        name: name of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        wire = _Wire(decode_sequenced, lambda asked, body: encode_sequenced(asked.control, body, asked.envelope))
        super().__init__(wire, port, name)


class TrackedServer(NumberedServer):
    """The server of model 3: it answers PING at once, busy or not, so that callers know that it is alive (RFC 10).

    Args:
        name: name of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        wire = _Wire(decode_controlled, lambda asked, body: encode_controlled(asked.control, body))
        super().__init__(wire, port, name)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """Answer a PING, or take a request. A request above the limit is dropped."""
        if len(frames) == 1 and frames[0] == PING:
            self._sends.append(Send(self._port, peer, (PONG,)))
            self.counters["pinged"] += 1
        elif super().reads(port):
            super().receive(port, peer, frames, now)
        else:
            self.counters["busy"] += 1

    def reads(self, port: str) -> bool:
        """Always True, as the next message may be a PING."""
        return True
