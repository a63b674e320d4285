"""Remember the bodies of the latest outbox rows, since each read of a body from the database is a round trip."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of remembered bodies; the oldest are forgotten first, and read from the database."""


class Bodies:
    """Bodies of outbox rows by counter.

    Args:
        bytes_max: most bytes of them.
    """

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max, self.bytes = bytes_max, 0
        self._found: OrderedDict[int, bytes] = OrderedDict()

    def add(self, counter: int, body: bytes) -> None:
        """Remember a body, and forget the oldest ones if there are too many bytes."""
        self.forget((counter,))
        self._found[counter] = body
        self.bytes += len(body)
        while self.bytes > self._bytes_max:
            _, oldest = self._found.popitem(last=False)
            self.bytes -= len(oldest)

    def get(self, counter: int) -> bytes | None:
        """Return a body; None if it is not remembered."""
        return self._found.get(counter)

    def forget(self, counters: Iterable[int]) -> None:
        """Forget the bodies of removed rows."""
        for counter in counters:
            body = self._found.pop(counter, None)
            if body is not None:
                self.bytes -= len(body)

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
        self.bytes = 0
