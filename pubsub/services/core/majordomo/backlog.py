"""The requests that wait for a worker, with limits in number, bytes and time."""

from __future__ import annotations

from typing import Final

from pubsub.services.core.interface import NEVER
from pubsub.services.core.majordomo.records import Request, Service

REQUEST_BYTES: Final = 500
"""Assumed overhead of a waiting request, in addition to its body."""

EXPIRY_SECONDS_MIN: Final = 0.25
"""Shortest interval between two searches for expired requests."""


class Backlog:
    """The waiting requests of all services.

    Args:
        requests_max: limit for one service.
        bytes_max: limit for all services.

    Attributes:
        bytes: bytes of all waiting requests, with REQUEST_BYTES for each.
        due: time of the next `expire`; NEVER if nothing waits.
    """

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._requests_max, self._bytes_max = requests_max, bytes_max
        self._services: dict[bytes, Service] = {}
        self.bytes = 0
        self.due = NEVER

    def add(self, service: Service, request: Request) -> bool:
        """Append a request of a service; False if there is no room for it."""
        size = request.size = REQUEST_BYTES + sum(map(len, request.body))
        requests = service.requests
        if len(requests) >= self._requests_max or self.bytes + size > self._bytes_max:
            return False
        if not requests:
            self._services[service.name] = service
            self.due = min(self.due, request.expires)
        requests.append(request)
        self.bytes += size
        return True

    def put_back(self, service: Service, request: Request) -> None:
        """Put a request back at the front of its service: no worker has seen it."""
        if not request.size:
            request.size = REQUEST_BYTES + sum(map(len, request.body))
        service.requests.appendleft(request)
        self._services[service.name] = service
        self.bytes += request.size
        self.due = min(self.due, request.expires)

    def take(self, service: Service) -> Request:
        """Take the oldest request of a service that has one."""
        request = service.requests.popleft()
        self.bytes -= request.size
        if not service.requests:
            del self._services[service.name]
            if not self._services:
                self.due = NEVER
        return request

    def expire(self, now: float) -> list[tuple[Service, int]]:
        """Drop the expired requests. Return their number by service."""
        expired = []
        for service in [*self._services.values()]:
            before = len(service.requests)
            while service.requests and service.requests[0].expires <= now:
                self.take(service)
            if before > len(service.requests):
                expired.append((service, before - len(service.requests)))
        due = min((service.requests[0].expires for service in self._services.values()), default=NEVER)
        self.due = max(due, now + EXPIRY_SECONDS_MIN)
        return expired
