"""The Messenger without its sockets: what each message does to the state, and what must be sent and called for it.

Every message is one of these, told by its two callback IDs (docs/messenger.md, *The wire*):

    destination   source   it is                  taken by                           it stops being sent when
    ours          -        an answer              the callback of its request        acknowledged (ordinary loops)
    NOOP          ours     a request              the server loop of its link        its answer is here
    NOOP          NOOP     a one-way message      the server loop of its link        acknowledged
    ECHO          ours     an echo request        answered with its own contents     its answer is here
    ACK           NOOP     ranges of message IDs  retires one-way messages           it is sent once

A request is never acknowledged: its answer says more. An answer is a one-way message, except that of an idempotent
loop, which is sent once under the message ID 0, *neither kept nor acknowledged*: the repeated request fetches it again.
The callback ID of a request whose sender makes each try itself is odd: its first answer is not acknowledged either.

The core is driven by one thread at a time. Only `register` and `forget` may be called by others meanwhile: each is one
operation on a dictionary.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

from pubsub.errors import DecodeError, TooLarge
from pubsub.messenger.framing import FIRST_CALLBACK, Callback, pack, unpack
from pubsub.messenger.limits import ACK_RANGES_MAX, MessengerLimits
from pubsub.messenger.peer import Buffer, Chance, Link, Peer, Pending, Request
from pubsub.messenger.pending import PendingMessages
from pubsub.messenger.seen import COUNT_BITS, INSTANCE_BITS, Ranges, Sighting

AnswerCallback = Callable[[Peer, Buffer, Sequence[Buffer]], object]
"""Called with (peer, contents of the first frame after the prefix, further frames)."""

ServerLoop = Callable[[Request], object]

Call = tuple[Callable[..., object], tuple[Any, ...]]
"""A function of the application and its arguments."""

Transmission = tuple[Peer, bytes, tuple[Buffer, ...]]
"""A message to send: to whom, its first frame, its further frames."""

_RANGE: Final = re.compile(rb"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_ACK_BYTES_MAX: Final = ACK_RANGES_MAX * 40
_UNKEPT: Final = 0


@dataclass(slots=True)
class Counters:
    """What happened so far, in messages unless said.

    Attributes:
        sent: handed to a socket, retries included.
        received: taken from a socket.
        retried: sent again.
        unsent: that a socket did not take: its queue is full, or the peer is not connected.
        acknowledged: one-way messages of ours that were.
        repeats: recognised and dropped (an idempotent loop gets them, uncounted).
        refused: under an ID that jumps too far or lies too far back, or from one peer too many.
        undecodable: that are not of the Messenger's format.
        unknown_callbacks: for a callback that is not registered, or not for their sender.
        unwanted: for the server loop of a link that has none.
        abandoned: still pending when their peer was forgotten.
        forgotten: callback registrations taken back by `forget`.
        callback_errors: exceptions that callbacks and server loops let out.
        peers_forgotten: peers that were silent for too long.
        redialed: connections made anew that ZeroMQ had given up for good, or would try for ever.
        turned_away: connections that the other side refused, for what keys there are on both sides or are not.
    """

    sent: int = 0
    received: int = 0
    retried: int = 0
    unsent: int = 0
    acknowledged: int = 0
    repeats: int = 0
    refused: int = 0
    undecodable: int = 0
    unknown_callbacks: int = 0
    unwanted: int = 0
    abandoned: int = 0
    forgotten: int = 0
    callback_errors: int = 0
    peers_forgotten: int = 0
    redialed: int = 0
    turned_away: int = 0


class MessengerCore:
    """The state of one Messenger.

    Args:
        instance: INSTANCE_BITS random bits, fresh for each Messenger; its message IDs begin with them.
        chance: where the jitter of retries comes from.
        answer: what `Request.reply` calls, with the request and the contents; it hands them to `answer`.
        limits: what is held at most.
        number: the ID of a new callback, even and at least FIRST_CALLBACK; None: they are counted. Whoever can guess
            one, and reaches the connection that its answer comes over, can answer in the place of who was asked.
    """

    def __init__(
        self,
        instance: int,
        chance: Chance,
        answer: Callable[[Request, Buffer | Sequence[Buffer]], None],
        limits: MessengerLimits | None = None,
        number: Callable[[], int] | None = None,
    ) -> None:
        self.limits = limits or MessengerLimits()
        self.counters = Counters()
        self.pending = PendingMessages(self.limits, chance)
        self._first_id = (instance % (1 << INSTANCE_BITS)) << COUNT_BITS
        self._answer = answer
        self._callbacks: dict[int, tuple[Peer, AnswerCallback]] = {}
        self._requests: dict[int, Pending] = {}
        self._number = number or partial(next, count(FIRST_CALLBACK, 2))
        self._outgoing: list[Transmission] = []
        self._acks_due: deque[tuple[float, Peer]] = deque()
        self._opened: list[Link] = []
        self._peers = 0
        self._ranges = Ranges()
        self._sweep_at: float | None = None

    # Callbacks: these two may be called from any thread.

    def register(self, peer: Peer, callback: AnswerCallback, *, retry: bool = True) -> int:
        """Number a callback that the answer of `peer` goes to; it is forgotten when that came.

        Raises:
            TooLarge: callbacks_max are registered.
        """
        if len(self._callbacks) >= self.limits.callbacks_max:
            raise TooLarge(
                "number of registered callbacks", len(self._callbacks) + 1, self.limits.callbacks_max, "callbacks_max"
            )
        token = self._number() + (not retry)
        self._callbacks[token] = peer, callback
        return token

    def forget(self, token: int) -> None:
        """The callback is not wanted any more; a pending request of it is given up when its next retry is due."""
        if self._callbacks.pop(token, None) is not None:
            self.counters.forgotten += 1

    @property
    def callbacks(self) -> int:
        """How many callbacks are registered."""
        return len(self._callbacks)

    @property
    def peers(self) -> int:
        """How many peers are known behind the endpoints that were opened."""
        return self._peers

    # Links

    def opened(self, endpoint: str, loop: ServerLoop, *, idempotent: bool = False) -> Link:
        """An endpoint was opened."""
        link = Link(endpoint, loop, idempotent=idempotent, opened=True)
        self._opened.append(link)
        return link

    def connected(self, endpoint: str, loop: ServerLoop | None = None, *, idempotent: bool = False) -> Link:
        """A connection was made; its `peer` is at the other end."""
        return Link(endpoint, loop, idempotent=idempotent, opened=False)

    def closed(self, link: Link) -> None:
        """A link was closed: what is pending on it is abandoned."""
        for peer in [link.peer] if link.peer is not None else list(link.peers.values()):
            self._drop(peer)
        if link in self._opened:
            self._opened.remove(link)

    def _peer(self, link: Link, routing: bytes, now: float) -> Peer | None:
        peer = link.peer if link.peer is not None else link.peers.get(routing)
        if peer is None:
            if self._peers >= self.limits.peers_max:
                self.counters.refused += 1
                return None
            peer = link.peers[routing] = Peer(link, routing, self._ranges)
            self._peers += 1
            if self._sweep_at is None:
                self._sweep_at = now + self.limits.idle_seconds / 4
        peer.heard = now
        return peer

    def _drop(self, peer: Peer) -> None:
        peer.forgotten = True
        for pending in list(peer.pending.values()):
            self.counters.abandoned += 1
            self._callbacks.pop(pending.token, None)
            self._requests.pop(pending.token, None)
            self.pending.retire(pending)
        if peer.link.peers.pop(peer.routing, None) is not None:
            self._peers -= 1
            peer.seen.forget()

    # Sending

    def send(
        self,
        peer: Peer,
        parts: Sequence[Buffer],
        now: float,
        *,
        token: int = 0,
        destination: int = Callback.NOOP,
        retry: bool = True,
    ) -> None:
        """Send a message.

        Args:
            peer: to whom.
            parts: its contents; the first follows the prefix, the others are further frames.
            now: the monotonic clock, in seconds.
            token: of the registered callback for its answer; 0: a one-way message.
            destination: the callback there that it goes to.
            retry: send it again until it is answered or acknowledged.
        """
        if peer.forgotten or (token and token not in self._callbacks):
            self.counters.abandoned += 1
            self._callbacks.pop(token, None)  # Nobody will ever answer.
            return
        message_id = _UNKEPT
        if token or retry:
            peer.sent += 1
            message_id = self._first_id + peer.sent
        head = pack(message_id, token, destination) + parts[0]
        rest = tuple(parts[1:])
        self._outgoing.append((peer, head, rest))
        if retry:
            pending = self.pending.add(peer, message_id, head, rest, token, now)
            if token:
                self._requests[token] = pending

    def answer(self, request: Request, parts: Sequence[Buffer], now: float) -> None:
        """Answer a request of a server loop."""
        self.send(request.peer, parts, now, destination=request.source, retry=not request.peer.link.idempotent)

    def take(self) -> list[Transmission]:
        """The messages to send, once."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # Receiving

    def receive(self, link: Link, routing: bytes, head: Buffer, frames: Sequence[Buffer], now: float) -> Call | None:
        """Take a message that came on a link.

        Args:
            link: the link.
            routing: the routing ID of its sender; b"" on a connection.
            head: its first frame.
            frames: its further frames.
            now: the monotonic clock, in seconds.

        Returns:
            What to call for it. Whatever it makes necessary to send is found by `take`.
        """
        self.counters.received += 1
        try:
            prefix = unpack(head)
        except DecodeError:
            self.counters.undecodable += 1
            return None
        peer = self._peer(link, routing, now)
        if peer is None:
            return None
        message_id, source, destination, length = prefix
        if destination >= FIRST_CALLBACK:
            return self._answered(peer, message_id, source, destination, head[length:], frames, now)
        if destination == Callback.NOOP:
            return self._arrived(peer, message_id, source, head[length:], frames, now)
        if destination == Callback.ACK:
            self._acknowledged(peer, head[length:])
        elif destination == Callback.ECHO and source:
            self._outgoing.append((peer, pack(_UNKEPT, Callback.NOOP, source) + head[length:], tuple(frames)))
        else:
            self.counters.unknown_callbacks += 1
        return None

    def _answered(
        self,
        peer: Peer,
        message_id: int,
        source: int,
        token: int,
        contents: Buffer,
        frames: Sequence[Buffer],
        now: float,
    ) -> Call | None:
        registered = self._callbacks.get(token)
        if registered is None:
            self.counters.unknown_callbacks += 1
        elif registered[0] is not peer:
            self.counters.unknown_callbacks += 1
            return None
        if message_id != _UNKEPT and not source and (registered is None or not token & 1):
            self._acknowledge(peer, message_id, now)
        if registered is None or self._callbacks.pop(token, None) is None:
            return None
        pending = self._requests.pop(token, None)
        if pending is not None:
            self.pending.retire(pending)
        return registered[1], (peer, contents, frames)

    def _arrived(
        self, peer: Peer, message_id: int, source: int, contents: Buffer, frames: Sequence[Buffer], now: float
    ) -> Call | None:
        link = peer.link
        if message_id != _UNKEPT and not link.idempotent:
            sighting = peer.seen.see(message_id)
            if sighting is Sighting.REFUSED:
                self.counters.refused += 1
                return None
            if not source:
                self._acknowledge(peer, message_id, now)
            if sighting is Sighting.REPEAT:
                self.counters.repeats += 1
                return None
        elif message_id != _UNKEPT and not source:
            self._acknowledge(peer, message_id, now)
        if link.loop is None:
            self.counters.unwanted += 1
            return None
        return link.loop, (Request(peer, source, contents, frames, self._answer),)

    # Acknowledgements

    def _acknowledge(self, peer: Peer, message_id: int, now: float) -> None:
        if not peer.acks:
            self._acks_due.append((now + self.limits.ack_seconds, peer))
        peer.acks.add(message_id)
        if len(peer.acks) >= ACK_RANGES_MAX:
            self._send_acks(peer)

    def _send_acks(self, peer: Peer) -> None:
        if not peer.acks or peer.forgotten:
            return
        ranges = ",".join([f"{low}-{high - 1}" if high - low > 1 else f"{low}" for low, high in peer.acks])
        peer.acks = type(peer.acks)()
        self._outgoing.append((peer, pack(_UNKEPT, Callback.NOOP, Callback.ACK) + ranges.encode("ascii"), ()))

    def _acknowledged(self, peer: Peer, contents: Buffer) -> None:
        if len(contents) > _ACK_BYTES_MAX:
            self.counters.undecodable += 1
            return
        for part in bytes(contents).split(b","):
            match = _RANGE.fullmatch(part)
            if match is None:
                self.counters.undecodable += 1
                return
            low = int(match[1])
            high = int(match[2]) if match[2] else low
            # The work is bounded by the messages that are pending: the range is the peer's word, and may be forged.
            known = range(low, high + 1) if high - low < len(peer.pending) else list(peer.pending)
            for message_id in known:
                pending = peer.pending.get(message_id)
                if pending is not None and low <= message_id <= high and not pending.token:
                    self.pending.retire(pending)
                    self.counters.acknowledged += 1

    # Time

    def tick(self, now: float) -> None:
        """Do what is due: retries, acknowledgements, forgetting idle peers."""
        for pending in self.pending.due(now):
            if pending.token and pending.token not in self._callbacks:
                del self._requests[pending.token]
                self.pending.retire(pending)
                continue
            self.counters.retried += 1
            self._outgoing.append((pending.peer, pending.head, pending.parts))
        while self._acks_due and self._acks_due[0][0] <= now:
            self._send_acks(self._acks_due.popleft()[1])
        if self._sweep_at is not None and self._sweep_at <= now:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        oldest = now - self.limits.idle_seconds
        for link in self._opened:
            for peer in [p for p in link.peers.values() if p.heard is None or p.heard <= oldest]:
                self._drop(peer)
                self.counters.peers_forgotten += 1
        self._sweep_at = now + self.limits.idle_seconds / 4 if self._peers else None

    def deadline(self) -> float | None:
        """When `tick` is to be called next, on the monotonic clock in seconds; None: not before something comes."""
        due = [time for time in (self.pending.deadline(), self._sweep_at) if time is not None]
        if self._acks_due:
            due.append(self._acks_due[0][0])
        return min(due) if due else None
