"""Simple Pirate: a queue between Lazy Pirate callers and workers with REQ sockets (ZeroMQ, the Guide, chapter 4).

    worker -> queue   [""][01]                          READY
    queue -> worker   [""][client][""][body…]           a request, and the same back with the reply's body

The queue does not notice a worker's death. The request of a dead worker is lost, and so is the next one while its
connection stands. A worker notices the end of its queue by the end of its connection, and sends READY on a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.interface import BaseCore, Dial, Frames, Requested, Send
from pubsub.services.core.queue import READY, PirateQueue

REDIAL_SECONDS: Final = 0.1
"""Time after which a worker reconnects. It doubles with each connection on which nothing comes."""

REDIAL_SECONDS_MAX: Final = 32.0

_PORT: Final = "queue"


class SimpleQueue(PirateQueue):
    def _from_worker(self, worker: bytes, frames: Sequence[bytes], now: float) -> None:
        if len(frames) < 2 or frames[0]:
            self.counters["undecodable"] += 1
        elif len(frames) == 2 and frames[1] == READY:
            self._is_ready(worker, now)
        else:
            self._replied(worker, frames[1:], now)

    def _request(self, client: bytes, body: Frames) -> Frames:
        return (b"", client, b"", *body)


class SimpleWorker(BaseCore):
    """A worker of such a queue, one request at a time. A `WorkerCore`.

    Args:
        address: of the queue's backend.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._token = 0
        self._client: bytes | None = None
        self._parts: list[bytes] = []
        self._redial_at: float | None = None
        self._redial_seconds = REDIAL_SECONDS

    def start(self, now: float) -> None:
        """Connect, and send READY."""
        self._client, self._parts, self._redial_at = None, [], None
        self._sends += [Dial(_PORT, self._address), Send(_PORT, b"", (b"", READY))]

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        if len(frames) < 4 or frames[0] or frames[2]:
            self.counters["undecodable"] += 1
            return
        self._redial_seconds = REDIAL_SECONDS
        if self._client is not None:
            self.counters["unasked"] += 1
            return
        self._token += 1
        self._client = frames[1]
        self.counters["requests"] += 1
        self._events.append(Requested(self._token, tuple(frames[3:])))

    def ended(self, port: str, now: float) -> None:
        """Reconnect later: the next queue at this address knows nothing of this worker."""
        self.counters["connections_ended"] += 1
        if self._redial_at is None:
            self._redial_at = now + self._redial_seconds
            self._redial_seconds = min(2 * self._redial_seconds, REDIAL_SECONDS_MAX)

    def timer(self) -> float | None:
        return self._redial_at

    def tick(self, now: float) -> None:
        """Reconnect if it is time. A request under way can no longer be answered."""
        if self._redial_at is not None and self._redial_at <= now:
            self._token += 1
            self.start(now)

    def reply(self, token: int, body: Frames, now: float) -> None:
        if token != self._token or self._client is None:
            self.counters["replies_dropped"] += 1
            return
        frames = (*self._parts, *body) or (b"",)
        self._sends.append(Send(_PORT, b"", (b"", self._client, b"", *frames)))
        self._client, self._parts = None, []
        self.counters["replies"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the reply for `reply`: the wire has no parts."""
        if token == self._token and self._client is not None:
            self._parts.extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """Send READY for the next request: the wire has no error reply."""
        if token == self._token and self._client is not None:
            self.counters["failed"] += 1
            self._client, self._parts = None, []
            self._sends.append(Send(_PORT, b"", (b"", READY)))
