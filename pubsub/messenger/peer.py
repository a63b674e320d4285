"""Whom a Messenger talks to: links, and the peers on them.

A link is one socket: a connection, with one peer, or an endpoint that was opened, with a peer for each Messenger that
connected to it, told apart by the random routing IDs that these gave themselves.
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
        endpoint: what it is bound or connected to.
        loop: called with each `Request` that names no callback of ours; None: such messages are dropped and counted.
        idempotent: repeats are handed to the loop; its answers are neither kept nor acknowledged.
        peers: of an endpoint that was opened, by routing ID.
        peer: of a connection.
    """

    __slots__ = ("endpoint", "idempotent", "loop", "peer", "peers")

    def __init__(
        self, endpoint: str, loop: Callable[[Request], object] | None, *, idempotent: bool, opened: bool
    ) -> None:
        self.endpoint, self.loop, self.idempotent = endpoint, loop, idempotent
        self.peers: dict[bytes, Peer] = {}
        self.peer = None if opened else Peer(self, b"")


class Peer:
    """Another Messenger, as this one sees it; what `connect` returns and what callbacks are given.

    Attributes:
        link: the socket it is heard on.
        routing: its routing ID there; b"" on a connection, which has one peer.
        heard: when it was last heard, on the monotonic clock in seconds; None: never.
        forgotten: it was silent for too long, or its link was closed: nothing more is sent to it.
    """

    __slots__ = ("acks", "forgotten", "heard", "link", "pending", "routing", "seen", "sent")

    def __init__(self, link: Link, routing: bytes, ranges: Ranges | None = None) -> None:
        self.link, self.routing = link, routing
        self.heard: float | None = None
        self.forgotten = False
        self.sent = 0
        self.seen = Seen(ranges)
        self.acks = IntervalSet()
        self.pending: dict[int, Pending] = {}

    @property
    def endpoint(self) -> str:
        """The endpoint it is connected to, or that it connected to."""
        return self.link.endpoint

    def __repr__(self) -> str:
        return f"<Peer {self.routing.hex()[:12] or 'at'} {self.endpoint}>"


class Chance(Protocol):
    """Where jitter comes from: a `random.Random`."""

    def random(self) -> float:
        """A number in [0, 1)."""


class Pending:
    """One message that is sent again until it is retired.

    Attributes:
        peer: to whom.
        message_id: under which it is known there.
        head, parts: its frames.
        token: of the callback that its answer goes to; 0 for a one-way message, which is retired by an ACK.
        retired: whether it is not pending any more.
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
        """Seconds until the next retry."""
        delay, self._delay = self._delay, min(self._delay * 2, limits.retry_seconds_max)
        return delay * (0.75 + 0.5 * chance.random())


class Request:
    """A message that names no callback of ours, as a server loop gets it.

    Attributes:
        peer: who sent it.
        contents: what follows the prefix in the first frame.
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
        """Whether the sender registered a callback for the answer."""
        return self.source != 0

    def reply(self, contents: Buffer | Sequence[Buffer]) -> None:
        """Answer it, now or later, from any thread; the answer is queued.

        Args:
            contents: what follows the prefix; of several parts the first does, and the others are further frames.

        Raises:
            CallerError: it wants no answer.
            TooLarge: a named limit is reached.
        """
        if not self.source:
            raise CallerError("a one-way message has no callback that an answer could go to")
        self._answer(self, contents)
