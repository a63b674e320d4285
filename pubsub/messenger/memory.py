"""The last resort against a peer that fills the memory where no queue of ours is: in ZeroMQ's own.

ZeroMQ bounds its queues by messages and each frame by its size, but neither the frames of a message that never ends nor
the bytes of all queues together, and it has no way to close one connection. But all that waits belongs to connections.
So a process that has grown beyond its limit closes them all and listens anew. Whoever behaves connects again and
repeats what was not answered, as after any cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pubsub.base.resources import resident_bytes as resident_bytes  # noqa: PLC0414  the size that is guarded
from pubsub.errors import ConfigurationError

LOOK_SECONDS: Final = 0.1
"""How often a process looks how large it is."""

PAUSE_SECONDS: Final = 0.5
"""After it has closed its connections it gives their memory so long to be freed."""

GROWTH: Final = 1.25
"""A process that is larger than its limit for another reason closes connections again when it has grown by so much."""

BIND_SECONDS: Final = 10.0
"""How long an address that was just given up may take to be free."""

_T = TypeVar("_T")


class MemoryGuard:
    """Tells when a process is too large.

    Args:
        limit: bytes; 0: none.
        size: how large it is.

    Attributes:
        wait_ms: how long its loop may sleep between two looks at most; None: as long as it likes.
    """

    def __init__(self, limit: int, size: Callable[[], int] = resident_bytes) -> None:
        self._limit, self._size = limit, size
        self._threshold = limit
        self._look_at = 0.0
        self._settling = False
        self.wait_ms = int(LOOK_SECONDS * 1000) if limit else None

    def exceeded(self, now: float) -> bool:
        """Whether it has grown beyond its limit; once for each time."""
        if not self._limit or now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        size = self._size()
        if self._settling:  # The memory of the closed connections is given back; the rest is not theirs.
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
    """Bind an address that was just given up, as soon as it is free.

    Raises:
        ConfigurationError: somebody else has taken it.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while True:
        try:
            return bind()
        except ConfigurationError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
