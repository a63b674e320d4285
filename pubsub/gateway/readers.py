"""Who reads from which subscriber: one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pubsub.gateway.problems import Problem

LEAVE_SECONDS: Final = 5.0
"""A reader that is to make room gets so long to notice."""

Key = tuple[str, str, str]


class Reader:
    """One that reads now.

    Attributes:
        told: it is to make room for another; gone: it has.
    """

    def __init__(self) -> None:
        self.told, self.gone = asyncio.Event(), asyncio.Event()


class Readers:
    """All that read now, by subscriber."""

    def __init__(self) -> None:
        self._readers: dict[Key, Reader] = {}

    @property
    def count(self) -> int:
        """How many read."""
        return len(self._readers)

    @asynccontextmanager
    async def reading(self, key: Key, *, take_over: bool = False) -> AsyncIterator[Reader]:
        """Be the one that reads from a subscriber, in the block.

        Args:
            key: the subscriber's.
            take_over: whoever reads now makes room; a stream that comes back must not wait for its own broken
                connection to be noticed.

        Raises:
            Problem: another one reads.
        """
        if take_over:
            await self.send_away(key)
        if key in self._readers:
            raise Problem("busy-subscriber", "Another request reads from this subscriber; there is one at a time.")
        reader = self._readers[key] = Reader()
        try:
            yield reader
        finally:
            del self._readers[key]
            reader.gone.set()

    async def send_away(self, key: Key) -> None:
        """Have whoever reads from a subscriber end, and wait for it."""
        reader = self._readers.get(key)
        if reader is None:
            return
        reader.told.set()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await reader.gone.wait()
        except TimeoutError:
            raise Problem("busy-subscriber", "Another request reads from this subscriber and does not end.") from None
