"""Unsent bytes in sockets: memory that only the peers can free, by reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import zmq

LARGE_BYTES: Final = 64 * 1024
"""Larger frames are counted in bytes when they are sent."""


class Unsent:
    """Large frames that sockets have not sent yet, by receiver.

    ZeroMQ limits a queue by messages, which is enough for small ones. For large frames, a receiver that reads none
    gets at most `each_max` bytes, and all receivers together hold at most `all_max`. Receivers that have read
    everything so far take precedence.

    Args:
        each_max, all_max: bytes after which no more frames are accepted; the last frame may exceed them.
    """

    def __init__(self, each_max: int, all_max: int) -> None:
        self._each_max, self._all_max = each_max, all_max
        self._held: dict[Hashable, deque[tuple[Any, int]]] = {}
        self._sizes: dict[Hashable, int] = {}
        self.size = 0

    def has_room(self, whom: Hashable) -> bool:
        """Return True if one more frame may be kept for this receiver."""
        if whom in self._held:
            self._forget_sent(whom)
        own = self._sizes.get(whom, 0)
        if own >= self._each_max:
            return False
        if self.size >= self._all_max:
            self.sweep()
        return self.size < (self._all_max if own else 2 * self._all_max)

    def frame(self, whom: Hashable, data: bytes | memoryview) -> zmq.Frame:
        """Return a frame to send without a copy; it is kept until it is sent or its connection ends."""
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
        """Forget all frames that were sent."""
        for whom in list(self._held):
            self._forget_sent(whom)
