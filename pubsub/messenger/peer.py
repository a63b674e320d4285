"""Links, and the peers on them.

A link is one socket. A connection has one peer. An opened endpoint has one peer for each Messenger that connected to
it; their random routing IDs tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pubsub.base.intervals import IntervalSet
from pubsub.errors import CallerError
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.seen import Ranges, Seen

Buffer = bytes | memoryview


class Link:
    """One socket.

    Attributes:
        endpoint: address that it is bound or connected to.
        loop: called with each `Request` that names no callback of ours; None drops and counts such messages.
        idempotent: repeats are passed to the loop; its answers are neither kept nor acknowledged.
        peers: peers of an opened endpoint, by routing ID.
        peer: the peer of a connection.
    """

    __slots__ = ("endpoint", "idempotent", "loop", "peer", "peers")

    def __init__(
        self, endpoint: str, loop: Callable[[Request], object] | None, *, idempotent: bool, opened: bool
    ) -> None:
        self.endpoint, self.loop, self.idempotent = endpoint, loop, idempotent
        self.peers: dict[bytes, Peer] = {}
        self.peer = None if opened else Peer(self, b"")


class Peer:
    """Another Messenger; returned by `connect` and passed to callbacks.

    Attributes:
        link: its socket.
        routing: its routing ID on that socket; b"" on a connection, which has one peer.
        received_at: time of its last message, on the monotonic clock in seconds; None before the first.
        forgotten: True after long silence or after its link was closed; nothing more is sent to it.
    """

    __slots__ = ("acks", "forgotten", "link", "pending", "received_at", "routing", "seen", "sent")

    def __init__(self, link: Link, routing: bytes, ranges: Ranges | None = None) -> None:
        self.link, self.routing = link, routing
        self.received_at: float | None = None
        self.forgotten = False
        self.sent = 0
        self.seen = Seen(ranges)
        self.acks = IntervalSet()
        self.pending: dict[int, Pending] = {}

    @property
    def endpoint(self) -> str:
        """Address of the connection, or of the opened endpoint that the peer connected to."""
        return self.link.endpoint

    def __repr__(self) -> str:
        return f"<Peer {self.routing.hex()[:12] or 'at'} {self.endpoint}>"


class Chance(Protocol):
    """Random numbers for jitter, such as a `random.Random`."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class Pending:
    """One message that is sent again until it is retired.

    Attributes:
        head, parts: its frames.
        token: callback ID of its answer; 0 for a one-way message, which an ACK retires.
        retired: True when it is not pending any more.
    """

    __slots__ = ("_delay", "head", "message_id", "parts", "peer", "retired", "size", "token")

    def __init__(
        self, peer: Peer, message_id: int, head: bytes, parts: tuple[Buffer, ...], token: int, delay: float
    ) -> None:
        self.peer, self.message_id, self.head, self.parts, self.token = peer, message_id, head, parts, token
        self.size = len(head) + sum(map(len, parts))
        self.retired = False
        self._delay = delay

    def next_delay(self, limits: MessengerLimits, chance: Chance) -> float:
        """Return the seconds until the next retry."""
        delay, self._delay = self._delay, min(self._delay * 2, limits.retry_seconds_max)
        return delay * (0.75 + 0.5 * chance.random())


class Request:
    """A message that names no callback of ours; a server loop receives it.

    Attributes:
        peer: its sender.
        contents: contents of the first frame, after the prefix.
        frames: the further frames.
    """

    __slots__ = ("_answer", "contents", "frames", "peer", "source")

    def __init__(
        self,
        peer: Peer,
        source: int,
        contents: Buffer,
        frames: Sequence[Buffer],
        answer: Callable[[Request, Buffer | Sequence[Buffer]], None],
    ) -> None:
        self.peer, self.source, self.contents, self.frames, self._answer = peer, source, contents, frames, answer

    @property
    def wants_answer(self) -> bool:
        """True if the sender registered a callback for the answer."""
        return self.source != 0

    def reply(self, contents: Buffer | Sequence[Buffer]) -> None:
        """Queue the answer. Any thread may call it, at any time.

        Args:
            contents: the answer. Of several parts, the first follows the prefix and the others are further frames.

        Raises:
            CallerError: the request wants no answer.
            TooLarge: a limit is reached.
        """
        if not self.source:
            raise CallerError("a one-way message cannot be answered; check wants_answer first")
        self._answer(self, contents)
