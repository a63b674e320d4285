"""How much is on its way to a server: what was sent and has not been taken in there lies in somebody's memory.

ZeroMQ bounds its queues by messages, not by bytes. Small bodies are bounded well enough by that; large ones are counted
here. A heartbeat that names a callback is a mark: the callback is the number of bytes sent so far, the server answers
it when it comes to it, and so has taken in all before. A mark that is lost, with what was before it, is made good by
the next one. Who has much under way gets no more of the room than its share, so that others go on.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MIB: Final = 1024 * 1024

LARGE_BYTES: Final = 16 * 1024
"""Bodies above this are counted."""

FLIGHT_BYTES_MAX: Final = 256 * MIB
"""Bytes of large bodies on their way to one server; a request beyond it is answered `busy`."""

CLIENT_BYTES_MAX: Final = 64 * MIB
"""The same of one client; one body always fits."""

MARK_BYTES: Final = 4 * MIB
"""Bytes after which a mark is sent."""


class InFlight:
    """What is on its way to one server.

    Attributes:
        sent: bytes so far.
        taken: bytes that the server has taken in, as far as it has said.
    """

    __slots__ = ("_by_client", "_marks", "_now", "sent", "taken")

    def __init__(self) -> None:
        self.sent = self.taken = 0
        self._by_client: dict[bytes, int] = {}
        self._now: dict[bytes, int] = {}
        """What was sent since the last mark."""
        self._marks: deque[tuple[int, dict[bytes, int]]] = deque()
        """Marks, and what was sent between each and the one before."""

    def __len__(self) -> int:
        return self.sent - self.taken

    def has_room(self, client: bytes, size: int) -> bool:
        """Whether so many bytes more of a client may be sent."""
        own = self._by_client.get(client, 0)
        return (not own or own + size <= CLIENT_BYTES_MAX) and len(self) + size <= FLIGHT_BYTES_MAX

    def add(self, client: bytes, size: int) -> bool:
        """They are; whether a mark is due."""
        self.sent += size
        self._by_client[client] = self._by_client.get(client, 0) + size
        self._now[client] = self._now.get(client, 0) + size
        return self.sent - (self._marks[-1][0] if self._marks else self.taken) >= MARK_BYTES

    def mark(self) -> int:
        """The callback of a mark that is sent now; 0 where none is needed."""
        if self._now:
            self._marks.append((self.sent, self._now))
            self._now = {}
        return self.sent if len(self) else 0

    def confirm(self, mark: int) -> None:
        """The server has come to a mark."""
        while self._marks and self._marks[0][0] <= mark:
            self.taken, sizes = self._marks.popleft()
            for client, size in sizes.items():
                left = self._by_client[client] - size
                if left:
                    self._by_client[client] = left
                else:
                    del self._by_client[client]

    def restart(self) -> None:
        """What was on its way went with the link."""
        self.taken = self.sent
        self._by_client, self._now = {}, {}
        self._marks.clear()
