"""Give a coroutine the connection of its transaction as an `AsyncConnection` of psycopg.

Both are faces of one connection of libpq: the coroutine has the awaited one, and the client commits by the other one,
on its own thread. The awaited face prepares statements, and the other one none, since their names would be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from pubsub.client.storage.postgres.connecting import StoreConnection
from pubsub.client.storage.postgres.handler_pool import HandlerPool
from pubsub.errors import HandlerMisused


class AsyncHandlerConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """The awaited face of a handler's connection.

    Attributes:
        other: the face of the client.
        loop: its event loop.
    """

    other: StoreConnection
    loop: asyncio.AbstractEventLoop

    async def commit(self) -> None:
        """Commit; refused in a transaction of the client."""
        self._refuse("commit")
        await super().commit()

    async def rollback(self) -> None:
        """Roll back; refused in a transaction of the client."""
        self._refuse("rollback")
        await super().rollback()

    async def close(self) -> None:
        """Close; refused in a transaction of the client."""
        self._refuse("close")
        await super().close()

    def _refuse(self, method: str) -> None:
        if self.other.guarded and not self.broken:
            raise HandlerMisused(
                f"connection.{method}() is not for a transaction of the client: let the handler's return end it; an "
                "exception rolls back"
            )


async def face_of(connection: StoreConnection) -> AsyncHandlerConnection | None:
    """Return the awaited face of a connection; None if it has one of another event loop."""
    loop, face = asyncio.get_running_loop(), connection.face
    if face is None:
        connection.prepare_threshold = None
        face = connection.face = AsyncHandlerConnection(connection.pgconn)
        face.other, face.loop = connection, loop
        await face.set_autocommit(True)
    return face if face.loop is loop else None


async def take(pool: HandlerPool, seconds: float) -> StoreConnection:
    """Take a connection of the pool as `HandlerPool.take`, while other tasks run."""
    asked = pool.ask()
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.wrap_future(asked)
    except BaseException as error:
        pool.give_up(asked)
        if isinstance(error, TimeoutError):
            raise pool.exhausted() from None
        raise
    return await opened(pool.connect, pool) if found is None else found


async def opened(connect: Callable[[], StoreConnection], pool: HandlerPool) -> StoreConnection:
    """Open a connection on another thread; after a cancellation it goes to the pool."""
    opening = asyncio.ensure_future(asyncio.to_thread(connect))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda done: None if done.exception() else pool.give_back(done.result()))
        raise
