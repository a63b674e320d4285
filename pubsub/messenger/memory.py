"""Last resort against a peer that fills memory in ZeroMQ's own queues, where no limit of ours applies.

ZeroMQ limits its queues by messages and each frame by its size. It limits neither the frames of an endless message nor
the bytes of all queues together, and it cannot close one connection. But all waiting data belongs to connections. So a
process that exceeds its memory limit closes all connections and listens again. Correct peers connect again and repeat
their unanswered messages, as after any cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pubsub.base.resources import resident_bytes as resident_bytes  # noqa: PLC0414  the size that is guarded
from pubsub.errors import ConfigurationError

LOOK_SECONDS: Final = 0.1
"""Interval at which a process checks its size."""

PAUSE_SECONDS: Final = 0.5
"""Time for the memory of closed connections to be freed."""

GROWTH: Final = 1.25
"""If a process is too large for another reason, it closes connections again only after growth by this factor."""

BIND_SECONDS: Final = 10.0
"""Time limit until a released address is free again."""

_T = TypeVar("_T")


class MemoryGuard:
    """Reports when a process is too large.

    Args:
        limit: bytes; 0 for no limit.
        size: returns the size of the process in bytes.

    Attributes:
        wait_ms: longest sleep of the loop between two checks, in milliseconds; None for no limit.
    """

    def __init__(self, limit: int, size: Callable[[], int] = resident_bytes) -> None:
        self._limit, self._size = limit, size
        self._threshold = limit
        self._look_at = 0.0
        self._settling = False
        self.wait_ms = int(LOOK_SECONDS * 1000) if limit else None

    def exceeded(self, now: float) -> bool:
        """Return True once each time the process has grown beyond its limit."""
        if not self._limit or now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        size = self._size()
        if self._settling:  # The memory of the closed connections is freed by now, so the rest has another reason.
            self._settling = False
            self._threshold = max(self._limit, int(size * GROWTH))
            return False
        if size < self._limit:
            self._threshold = self._limit
        if size <= self._threshold:
            return False
        self._look_at = now + PAUSE_SECONDS
        self._settling = True
        return True


def once_free(bind: Callable[[], _T]) -> _T:
    """Bind an address that was just released, as soon as it is free.

    Raises:
        ConfigurationError: another process took the address.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while True:
        try:
            return bind()
        except ConfigurationError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
