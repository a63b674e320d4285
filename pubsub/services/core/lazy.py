"""Lazy Pirate: a caller that tries again, and a server that answers (ZeroMQ, the Guide, chapter 4).

On the wire `[""][body…]` both ways, as REQ and REP speak. A request may be done more than once, and its reply may be
lost: the caller alone sees to it, and knows no more than that an answer came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.interface import Answered, Asked, BaseCore, Event, Frames, Requested, Send
from pubsub.services.core.lockstep import LockstepCaller

REQUESTS_MAX: Final = 1_000
"""Requests that a server has taken and not answered; no more are read meanwhile."""


class ReqWire:
    """The wire of REQ and REP."""

    def request(self, service: str, body: Frames) -> Frames:
        """The frames of a request; the name of the service is not said."""
        return (b"", *(body or (b"",)))

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """The reply, where it is one."""
        return Answered(token, tuple(frames[1:])) if len(frames) > 1 and not frames[0] else None


def lazy_caller(addresses: Sequence[str]) -> LockstepCaller:
    """The caller of any REP server, or of a Simple or Paranoid Pirate queue; several addresses are tried in turn."""
    return LockstepCaller(ReqWire(), addresses)


class ReplyServer(BaseCore):
    """A server as REP is one, to which any REQ may speak; requests are handed out one after the other.

    A `WorkerCore`. The envelope may have several addresses before the empty frame, as queues between add them.

    Args:
        port: by which it listens.
        name: of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        super().__init__()
        self._port, self._name = port, name
        self._count = 0
        self._requests: dict[int, tuple[bytes, Frames, list[bytes]]] = {}

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A request came."""
        envelope = _envelope(frames)
        if envelope is None:
            self.counters["undecodable"] += 1
            return
        self._count += 1
        self._requests[self._count] = peer, envelope, []
        self._events.append(Requested(self._count, tuple(frames[len(envelope) :])))

    def reads(self, port: str) -> bool:
        """Whether more requests are taken."""
        return len(self._requests) < REQUESTS_MAX

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """To call this service takes the right to."""
        return Asked("call", self._name)

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request."""
        peer, envelope, parts = self._requests.pop(token, (b"", (), []))
        if envelope:
            self._sends.append(Send(self._port, peer, (*envelope, *parts, *(body if body or parts else (b"",)))))
            self.counters["replied"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the answer for `reply`: the wire knows whole ones only."""
        if token in self._requests:
            self._requests[token][2].extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """No reply: the wire has none that says so, and the caller tries again."""
        if self._requests.pop(token, None) is not None:
            self.counters["failed"] += 1


def _envelope(frames: Sequence[bytes]) -> Frames | None:
    """The frames up to and with the empty one; None where there is none, or nothing behind it."""
    for index, frame in enumerate(frames):
        if not frame:
            return tuple(frames[: index + 1]) if index + 1 < len(frames) else None
    return None
