"""The common part of Pirate queues: requests go to the worker that has been free for longest, and replies go back.

A worker has one request at a time. A reply counts only from the worker that has the request, and for the client that
sent it. The frontend is read only while a worker is free. A request that could not be sent to its worker waits for the
next one, for a limited time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from pubsub.services.core.interface import Asked, BaseCore, Frames, Port, Send

FRONTEND: Final = "frontend"
BACKEND: Final = "backend"

READY: Final = b"\x01"
HEARTBEAT: Final = b"\x02"

WORKERS_MAX: Final = 10_000
"""Workers of one queue. For a further worker, the one that has been busy for longest is forgotten."""

HELD_SECONDS: Final = 10.0
"""Time that a request waits for another worker if its own could not be reached. Its client tries again."""


class _Held(NamedTuple):
    client: bytes
    body: Frames
    until: float


class PirateQueue(BaseCore, ABC):
    """A queue without the wire of its workers, which subclasses add.

    Args:
        name: name of the service, for rights.
    """

    def __init__(self, name: str = "queue") -> None:
        super().__init__()
        self._name = name
        self._free: dict[bytes, None] = {}
        """Free workers, the least recently used one first."""
        self._busy: dict[bytes, Frames] = {}
        """Worker -> client and body of its request, the longest busy one first."""
        self._held: deque[_Held] = deque()

    @staticmethod
    def ports(frontend: str, backend: str) -> tuple[Port, Port]:
        """Return the two ports of a queue."""
        return Port(FRONTEND, frontend, gated=True), Port(BACKEND, backend)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        if port == BACKEND:
            self._from_worker(peer, frames, now)
        elif len(frames) < 2 or frames[0]:
            self.counters["undecodable"] += 1
        else:
            self.counters["requests"] += 1
            self._held.append(_Held(peer, tuple(frames[1:]), now + HELD_SECONDS))
            self._hand_out(now)

    def reads(self, port: str) -> bool:
        """Whether to read the frontend: only while a worker is free and no request waits."""
        return bool(self._free) and not self._held

    def timer(self) -> float | None:
        """Time at which the oldest waiting request is dropped."""
        return self._held[0].until if self._held else None

    def tick(self, now: float) -> None:
        """Drop the requests that waited too long."""
        while self._held and self._held[0].until <= now:
            self._held.popleft()
            self.counters["requests_expired"] += 1

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Give the request of a lost worker to another one, or drop the reply to a lost client."""
        super().undelivered(send, now, gone=gone)
        if send.port != BACKEND:
            self.counters["replies_dropped"] += 1
            return
        request = self._busy.get(send.peer)
        self._forget(send.peer)
        self.counters["workers_gone"] += 1
        if request is not None:
            self._held.appendleft(_Held(request[0], request[1:], now + HELD_SECONDS))
            self._hand_out(now)

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """Clients need the right to call, workers the right to serve."""
        return Asked("serve" if port == BACKEND else "call", self._name)

    # For subclasses

    @abstractmethod
    def _from_worker(self, worker: bytes, frames: Sequence[bytes], now: float) -> None:
        """Handle a message of a worker, without its routing ID."""

    @abstractmethod
    def _request(self, client: bytes, body: Frames) -> Frames:
        """Return a request in the wire of the workers."""

    def _usable(self, worker: bytes, now: float) -> bool:
        """Whether a free worker may get a request."""
        return True

    def _forget(self, worker: bytes) -> None:
        self._free.pop(worker, None)
        self._busy.pop(worker, None)

    def _is_ready(self, worker: bytes, now: float) -> None:
        """Note that a worker is free. If it had a request, the request is given up, and its client tries again."""
        if self._busy.pop(worker, None) is not None:
            self.counters["requests_dropped"] += 1
        elif worker not in self._free and len(self._free) + len(self._busy) >= WORKERS_MAX:
            self._forget(next(iter(self._busy or self._free)))
            self.counters["workers_forgotten"] += 1
        self._free.pop(worker, None)
        self._free[worker] = None
        self._hand_out(now)

    def _replied(self, worker: bytes, frames: Sequence[bytes], now: float) -> None:
        """Pass on a reply: client, empty frame, body."""
        if len(frames) < 3 or frames[1]:
            self.counters["undecodable"] += 1
            return
        request = self._busy.get(worker)
        if request is None or request[0] != frames[0]:
            self.counters["unasked"] += 1
            return
        del self._busy[worker]
        self.counters["replies"] += 1
        self._sends.append(Send(FRONTEND, frames[0], tuple(frames[1:])))
        self._is_ready(worker, now)

    def _hand_out(self, now: float) -> None:
        """Give requests to free workers, the least recently used one first."""
        while self._held and self._free:
            worker = next(iter(self._free))
            del self._free[worker]
            if not self._usable(worker, now):
                self._forget(worker)
                continue
            held = self._held.popleft()
            self._busy[worker] = (held.client, *held.body)
            self._sends.append(Send(BACKEND, worker, self._request(held.client, held.body)))
