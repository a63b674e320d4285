"""The records of a broker: requests, workers and services."""

from __future__ import annotations

from collections import OrderedDict, deque

from pubsub.services.core.interface import Frames
from pubsub.services.core.majordomo.messages import ClientDialect, WorkerDialect


class Request:
    """A request of a client, while it waits or a worker has it.

    Args:
        client: the client's routing ID.
        expires: monotonic time at which it is dropped if no worker has begun it.
    """

    __slots__ = ("begun", "body", "client", "complete", "dialect", "expires", "parts", "parts_bytes", "size")

    def __init__(self, client: bytes, dialect: ClientDialect, body: Frames, expires: float) -> None:
        self.client, self.dialect, self.body, self.expires = client, dialect, body, expires
        self.begun = 0.0
        """Monotonic time at which a worker got it."""
        self.size = 0
        self.parts: list[bytes] | None = None
        """Parts of the reply, kept until the last one: the version of this client has no parts."""
        self.parts_bytes = 0
        self.complete = True
        """Whether all parts of the reply fit in memory. If not, the request gets no reply."""


class Worker:
    """A registered worker.

    Args:
        peer: its routing ID.
        now: counts as the time of its last message.
    """

    __slots__ = ("dialect", "peer", "received_at", "request", "sent", "service", "slot")

    def __init__(self, peer: bytes, dialect: WorkerDialect, service: Service, now: float) -> None:
        self.peer, self.dialect, self.service = peer, dialect, service
        self.received_at = self.sent = now
        self.slot = 0
        """Its slot in `Presence`."""
        self.request: Request | None = None
        """The request that it works on; None: it is idle."""


class Service:
    """A service with workers or waiting requests.

    Args:
        name: of 1 to SERVICE_BYTES_MAX bytes.

    Attributes:
        workers: number of registered workers.
        idle: idle workers, the least recently used one first.
        requests: waiting requests, the oldest first.
        answered: number of complete replies.
        given_up: number of requests with a lost worker.
    """

    __slots__ = ("answered", "given_up", "idle", "name", "requests", "workers")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.workers = self.answered = self.given_up = 0
        self.idle: OrderedDict[bytes, Worker] = OrderedDict()
        self.requests: deque[Request] = deque()
