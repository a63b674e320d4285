"""The requests that read from subscribers: one for each subscriber.

The rule is docs/explanation/gateway.md, H7.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pubsub.gateway.problems import Problem

LEAVE_SECONDS: Final = 5.0
"""Time for a reader to end when another one takes over."""

Key = tuple[str, str, str]


class Reader:
    """A request that reads.

    Attributes:
        told: it must end; gone: it has ended.
    """

    def __init__(self) -> None:
        self.told, self.gone = asyncio.Event(), asyncio.Event()


class Readers:
    def __init__(self) -> None:
        self._readers: dict[Key, Reader] = {}

    @property
    def count(self) -> int:
        return len(self._readers)

    @asynccontextmanager
    async def reading(self, key: Key, *, take_over: bool = False) -> AsyncIterator[Reader]:
        """Be the only reader of a subscriber during the block.

        Args:
            key: of the subscriber.
            take_over: end the present reader. A returning stream must not wait until its own broken connection is
                noticed.

        Raises:
            Problem: another request reads.
        """
        if take_over:
            await self.send_away(key)
        if key in self._readers:
            raise Problem("busy-subscriber", "Another request reads from this subscriber; only one may at a time.")
        reader = self._readers[key] = Reader()
        try:
            yield reader
        finally:
            del self._readers[key]
            reader.gone.set()

    async def send_away(self, key: Key) -> None:
        """End the present reader of a subscriber, and wait for it."""
        reader = self._readers.get(key)
        if reader is None:
            return
        reader.told.set()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await reader.gone.wait()
        except TimeoutError:
            text = "Another request reads from this subscriber and does not end; try again."
            raise Problem("busy-subscriber", text) from None
