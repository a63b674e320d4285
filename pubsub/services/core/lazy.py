"""Lazy Pirate: a caller that tries again, and a server that replies (ZeroMQ, the Guide, chapter 4).

The wire is `[""][body…]` both ways, as between REQ and REP. A request may be done more than once, and its reply may be
lost. Only the caller takes care of this, and knows no more than that a reply came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.interface import Answered, Asked, BaseCore, Event, Frames, Requested, Send
from pubsub.services.core.lockstep import LockstepCaller

REQUESTS_MAX: Final = 1_000
"""Requests that a server holds without a reply. No more are read meanwhile."""


class ReqWire:
    """The wire of REQ and REP."""

    def request(self, service: str, body: Frames) -> Frames:
        """Return the frames of a request. They do not contain the name of the service."""
        return (b"", *(body or (b"",)))

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """Return the reply, or None if the frames are not a reply."""
        return Answered(token, tuple(frames[1:])) if len(frames) > 1 and not frames[0] else None


def lazy_caller(addresses: Sequence[str]) -> LockstepCaller:
    """Return the caller of a REP server or a Pirate queue (Simple, Paranoid). Several addresses are tried in turn."""
    return LockstepCaller(ReqWire(), addresses)


class ReplyServer(BaseCore):
    """A server like a REP socket, for any REQ socket. It passes requests to its handler one by one. A `WorkerCore`.

    Queues on the way may have added addresses to the envelope before the empty frame.

    Args:
        name: name of the service, for rights.
    """

    def __init__(self, port: str = "requests", name: str = "") -> None:
        super().__init__()
        self._port, self._name = port, name
        self._count = 0
        self._requests: dict[int, tuple[bytes, Frames, list[bytes]]] = {}

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        envelope = _envelope(frames)
        if envelope is None:
            self.counters["undecodable"] += 1
            return
        self._count += 1
        self._requests[self._count] = peer, envelope, []
        self._events.append(Requested(self._count, tuple(frames[len(envelope) :])))

    def reads(self, port: str) -> bool:
        return len(self._requests) < REQUESTS_MAX

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """Return the right to call this service."""
        return Asked("call", self._name)

    def reply(self, token: int, body: Frames, now: float) -> None:
        peer, envelope, parts = self._requests.pop(token, (b"", (), []))
        if envelope:
            self._sends.append(Send(self._port, peer, (*envelope, *parts, *(body if body or parts else (b"",)))))
            self.counters["replied"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the reply for `reply`: the wire has no parts."""
        if token in self._requests:
            self._requests[token][2].extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """Send nothing: the wire has no error reply, and the caller tries again."""
        if self._requests.pop(token, None) is not None:
            self.counters["failed"] += 1


def _envelope(frames: Sequence[bytes]) -> Frames | None:
    """Return the frames up to and with the empty one; None if there is none, or nothing behind it."""
    for index, frame in enumerate(frames):
        if not frame:
            return tuple(frames[: index + 1]) if index + 1 < len(frames) else None
    return None
