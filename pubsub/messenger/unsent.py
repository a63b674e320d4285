"""How much lies in sockets and has not been sent yet: memory that only the peers can free, by reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import zmq

LARGE_BYTES: Final = 64 * 1024
"""Frames above this are counted in bytes where they are sent."""


class Unsent:
    """Large frames that sockets were given and have not sent yet, by whom they are for.

    ZeroMQ bounds a queue by messages. Small ones are bounded well enough by that; who takes none of the large ones gets
    no more of them than `each_max` bytes, and all together hold no more than `all_max`, where those come first who have
    taken all they got.

    Args:
        each_max, all_max: bytes after which no more is kept; what is under way then may go beyond it by one frame.
    """

    def __init__(self, each_max: int, all_max: int) -> None:
        self._each_max, self._all_max = each_max, all_max
        self._held: dict[Hashable, deque[tuple[Any, int]]] = {}
        self._sizes: dict[Hashable, int] = {}
        self.size = 0

    def has_room(self, whom: Hashable) -> bool:
        """Whether one frame more may be kept for somebody."""
        if whom in self._held:
            self._forget_sent(whom)
        own = self._sizes.get(whom, 0)
        if own >= self._each_max:
            return False
        if self.size >= self._all_max:
            self.sweep()
        return self.size < (self._all_max if own else 2 * self._all_max)

    def frame(self, whom: Hashable, data: bytes | memoryview) -> zmq.Frame:
        """The frame to send, which is not copied and is kept until it is sent, or its connection ends."""
        frame = zmq.Frame(data, copy=False, track=True)
        self._held.setdefault(whom, deque()).append((frame.tracker, len(data)))
        self._sizes[whom] = self._sizes.get(whom, 0) + len(data)
        self.size += len(data)
        return frame

    def _forget_sent(self, whom: Hashable) -> None:
        held = self._held[whom]
        while held and held[0][0].done:
            size = held.popleft()[1]
            self._sizes[whom] -= size
            self.size -= size
        if not held:
            del self._held[whom], self._sizes[whom]

    def sweep(self) -> None:
        """Forget all that is sent."""
        for whom in list(self._held):
            self._forget_sent(whom)
