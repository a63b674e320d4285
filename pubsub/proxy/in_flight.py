"""Bytes in flight to a server: sent to it, and not taken in by it yet, so they occupy memory on the way.

ZeroMQ bounds its queues by messages, not by bytes. That bounds small bodies well enough. Large bodies are counted here.

A heartbeat that names a callback is a mark. The callback is the number of bytes sent so far. The server answers a mark
in its turn, so by then it has taken in all earlier bytes. If a mark is lost with the bytes before it, the next mark
covers them. Each client gets only its share of the room, so that a busy client does not stop the others.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MIB: Final = 1024 * 1024

LARGE_BYTES: Final = 16 * 1024
"""Bodies with more bytes are counted."""

FLIGHT_BYTES_MAX: Final = 256 * MIB
"""Limit of large bodies in flight to one server. A request beyond it is answered `busy`."""

CLIENT_BYTES_MAX: Final = 64 * MIB
"""The same for one client; a single body is always allowed."""

MARK_BYTES: Final = 4 * MIB
"""Bytes after which a mark is sent."""


class InFlight:
    """Bytes in flight to one server.

    Attributes:
        sent: bytes sent so far.
        taken: bytes that the server has confirmed.
    """

    __slots__ = ("_by_client", "_marks", "_now", "sent", "taken")

    def __init__(self) -> None:
        self.sent = self.taken = 0
        self._by_client: dict[bytes, int] = {}
        self._now: dict[bytes, int] = {}
        """By client: bytes since the last mark."""
        self._marks: deque[tuple[int, dict[bytes, int]]] = deque()
        """Each mark with the bytes of each client since the mark before."""

    def __len__(self) -> int:
        return self.sent - self.taken

    def has_room(self, client: bytes, size: int) -> bool:
        """Return whether a client may send this many more bytes."""
        own = self._by_client.get(client, 0)
        return (not own or own + size <= CLIENT_BYTES_MAX) and len(self) + size <= FLIGHT_BYTES_MAX

    def add(self, client: bytes, size: int) -> bool:
        """Count bytes that are sent; return whether a mark is due."""
        self.sent += size
        self._by_client[client] = self._by_client.get(client, 0) + size
        self._now[client] = self._now.get(client, 0) + size
        return self.sent - (self._marks[-1][0] if self._marks else self.taken) >= MARK_BYTES

    def mark(self) -> int:
        """Return the callback of a mark that is sent now; 0 if none is needed."""
        if self._now:
            self._marks.append((self.sent, self._now))
            self._now = {}
        return self.sent if len(self) else 0

    def confirm(self, mark: int) -> None:
        """Count all bytes before a mark as taken in."""
        while self._marks and self._marks[0][0] <= mark:
            self.taken, sizes = self._marks.popleft()
            for client, size in sizes.items():
                left = self._by_client[client] - size
                if left:
                    self._by_client[client] = left
                else:
                    del self._by_client[client]

    def restart(self) -> None:
        """Count all bytes as taken in, because they were lost with the link."""
        self.taken = self.sent
        self._by_client, self._now = {}, {}
        self._marks.clear()
