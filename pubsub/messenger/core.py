"""The Messenger without sockets: the effect of each message on the state, the messages to send, and the functions to
call.

The two callback IDs of a message tell its kind (docs/messenger.md, *The wire*):

    destination   source   kind                   received by                        sent again until
    ours          -        an answer              the callback of its request        acknowledged (ordinary loops)
    NOOP          ours     a request              the server loop of its link        its answer arrives
    NOOP          NOOP     a one-way message      the server loop of its link        acknowledged
    ECHO          ours     an echo request        answered with its own contents     its answer arrives
    ACK           NOOP     ranges of message IDs  retires one-way messages           never sent again

A request is never acknowledged, because its answer says more. An answer is a one-way message, with one exception. An
idempotent loop sends its answer once, under the message ID 0, and neither keeps it nor expects an acknowledgement: the
repeated request fetches the answer again. If the sender makes each try itself, the callback ID of its request is odd,
and it does not acknowledge the answer either.

One thread at a time drives the core. Only `register` and `forget` may be called by other threads meanwhile, because
each is one operation on a dictionary.
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
"""A message to send: its peer, its first frame, and its further frames."""

_RANGE: Final = re.compile(rb"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_ACK_BYTES_MAX: Final = ACK_RANGES_MAX * 40
_UNKEPT: Final = 0


@dataclass(slots=True)
class Counters:
    """Events so far; each field counts messages unless its text names something else.

    Attributes:
        sent: handed to a socket, including retries.
        received: taken from a socket.
        retried: sent again.
        unsent: refused by a socket, because its queue is full or the peer is not connected.
        acknowledged: one-way messages of ours that the peer acknowledged.
        repeats: recognized as repeats and dropped; an idempotent loop receives its repeats, uncounted.
        refused: dropped because the ID jumps too far or is too old, or because there are too many peers.
        undecodable: not in the Messenger's format.
        unknown_callbacks: for a callback that is not registered, or that expects another sender.
        unwanted: for the server loop of a link without one.
        abandoned: still pending when their peer was forgotten.
        forgotten: callback registrations that `forget` removed.
        callback_errors: exceptions raised by callbacks and server loops.
        peers_forgotten: peers that were silent for too long.
        redialed: connections that the Messenger made again because ZeroMQ would not, or would retry without end.
        keys_refused: connections that the other side refused because of the keys of the two sides.
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
    keys_refused: int = 0


class MessengerCore:
    """The state of one Messenger.

    Args:
        instance: INSTANCE_BITS random bits, new for each Messenger; its message IDs begin with them.
        chance: random numbers for the jitter of retries.
        answer: called by `Request.reply` with the request and the contents; it must pass them to `answer`.
        number: makes the ID of a new callback, even and at least FIRST_CALLBACK; None counts up. IDs must be hard to
            guess: a process that guesses one, and reaches the connection, can answer in place of the real peer.
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

    # Callbacks: any thread may call these two methods.

    def register(self, peer: Peer, callback: AnswerCallback, *, retry: bool = True) -> int:
        """Register a callback for one answer of `peer`, and return its ID; it is forgotten after the answer.

        Raises:
            TooLarge: callbacks_max callbacks are registered.
        """
        if len(self._callbacks) >= self.limits.callbacks_max:
            raise TooLarge(
                "number of registered callbacks", len(self._callbacks) + 1, self.limits.callbacks_max, "callbacks_max"
            )
        token = self._number() + (not retry)
        self._callbacks[token] = peer, callback
        return token

    def forget(self, token: int) -> None:
        """Remove a callback; its pending request is given up when the next retry is due."""
        if self._callbacks.pop(token, None) is not None:
            self.counters.forgotten += 1

    @property
    def callbacks(self) -> int:
        """Number of registered callbacks."""
        return len(self._callbacks)

    @property
    def peers(self) -> int:
        """Number of known peers behind opened endpoints."""
        return self._peers

    # Links

    def opened(self, endpoint: str, loop: ServerLoop, *, idempotent: bool = False) -> Link:
        """Add the link of an opened endpoint."""
        link = Link(endpoint, loop, idempotent=idempotent, opened=True)
        self._opened.append(link)
        return link

    def connected(self, endpoint: str, loop: ServerLoop | None = None, *, idempotent: bool = False) -> Link:
        """Add the link of a connection; its `peer` is the other side."""
        return Link(endpoint, loop, idempotent=idempotent, opened=False)

    def closed(self, link: Link) -> None:
        """Remove a link and abandon its pending messages."""
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
        peer.received_at = now
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
            parts: its contents; the first part follows the prefix, the others are further frames.
            now: the monotonic clock, in seconds.
            token: ID of the registered callback for the answer; 0 for a one-way message.
            destination: callback ID at the receiver.
            retry: send the message again until it is answered or acknowledged.
        """
        if peer.forgotten or (token and token not in self._callbacks):
            self.counters.abandoned += 1
            self._callbacks.pop(token, None)  # No answer can arrive any more.
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
        self.send(request.peer, parts, now, destination=request.source, retry=not request.peer.link.idempotent)

    def take(self) -> list[Transmission]:
        """Return the messages to send, and empty the list."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # Receiving

    def receive(self, link: Link, routing: bytes, head: Buffer, frames: Sequence[Buffer], now: float) -> Call | None:
        """Process a received message.

        Args:
            routing: routing ID of its sender; b"" on a connection.
            head: its first frame.
            frames: its further frames.
            now: the monotonic clock, in seconds.

        Returns:
            The function of the application to call, or None. `take` returns the messages to send.
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
            # The peer's range may be forged. So bound the work by the number of pending messages.
            known = range(low, high + 1) if high - low < len(peer.pending) else list(peer.pending)
            for message_id in known:
                pending = peer.pending.get(message_id)
                if pending is not None and low <= message_id <= high and not pending.token:
                    self.pending.retire(pending)
                    self.counters.acknowledged += 1

    # Time

    def tick(self, now: float) -> None:
        """Do the work that is due: retries, acknowledgements, and forgetting idle peers."""
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
            for peer in [p for p in link.peers.values() if p.received_at is None or p.received_at <= oldest]:
                self._drop(peer)
                self.counters.peers_forgotten += 1
        self._sweep_at = now + self.limits.idle_seconds / 4 if self._peers else None

    def deadline(self) -> float | None:
        """Return when `tick` is due, on the monotonic clock in seconds; None means not before the next message."""
        due = [time for time in (self.pending.deadline(), self._sweep_at) if time is not None]
        if self._acks_due:
            due.append(self._acks_due[0][0])
        return min(due) if due else None
