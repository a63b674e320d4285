"""What a broker remembers: requests, workers and services."""

from __future__ import annotations

from collections import OrderedDict, deque

from pubsub.services.core.interface import Frames
from pubsub.services.core.majordomo.messages import ClientDialect, WorkerDialect


class Request:
    """What a client asked for, while it waits or a worker has it.

    Args:
        client: the client's routing ID.
        dialect: how it is spoken to.
        body: frames.
        expires: when it is given up if no worker has begun it, on the monotonic clock in seconds.
    """

    __slots__ = ("begun", "body", "client", "dialect", "expires", "parts", "parts_bytes", "size", "whole")

    def __init__(self, client: bytes, dialect: ClientDialect, body: Frames, expires: float) -> None:
        self.client, self.dialect, self.body, self.expires = client, dialect, body, expires
        self.begun = 0.0
        """When a worker got it, on the monotonic clock in seconds."""
        self.size = 0
        self.parts: list[bytes] | None = None
        """Parts of the reply that are kept until it is whole, for a client whose version knows none."""
        self.parts_bytes = 0
        self.whole = True
        """Whether no part of the reply was too much to be kept; else it is not answered."""


class Worker:
    """A worker that is registered.

    Args:
        peer: its routing ID.
        dialect: how it is spoken to.
        service: what it serves.
        now: it counts as heard now.
    """

    __slots__ = ("dialect", "heard", "peer", "request", "sent", "service", "slot")

    def __init__(self, peer: bytes, dialect: WorkerDialect, service: Service, now: float) -> None:
        self.peer, self.dialect, self.service = peer, dialect, service
        self.heard = self.sent = now
        self.slot = 0
        """Where `Presence` has it."""
        self.request: Request | None = None
        """What it works on; None: it is idle."""


class Service:
    """A service that has workers, or requests that wait for one.

    Args:
        name: of 1 to SERVICE_BYTES_MAX bytes.

    Attributes:
        workers: how many are registered.
        idle: those without work, the least recently used one first.
        requests: what waits, the oldest first.
        answered: replies that were whole.
        given_up: requests whose worker was lost.
    """

    __slots__ = ("answered", "given_up", "idle", "name", "requests", "workers")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.workers = self.answered = self.given_up = 0
        self.idle: OrderedDict[bytes, Worker] = OrderedDict()
        self.requests: deque[Request] = deque()
