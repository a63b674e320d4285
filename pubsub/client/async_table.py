"""The table of `AsyncClient`, apart from `Table`: a command that reads a table does not load asyncio."""

from __future__ import annotations

import asyncio
from typing import Self

from pubsub.client.tables import Key, Table


class AsyncTable(Table):
    """A table of `AsyncClient`: an asynchronous context manager; its calls that wait are coroutines."""

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def wait_for(self, key: Key, timeout: float | None = None) -> bytes:  # type: ignore[override]
        """Return the value of a key as soon as there is one; arguments and errors as `Table.wait_for`."""
        return await asyncio.to_thread(Table.wait_for, self, key, timeout)

    async def sync(self, timeout: float | None = None) -> None:  # type: ignore[override]
        """Wait until the table has every message with an earlier answer to its put; errors as `Table.sync`."""
        await asyncio.to_thread(Table.sync, self, timeout)
