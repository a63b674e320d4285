"""Run several handlers side by side as tasks of an `AsyncClient` (see `worker_pool`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pubsub.client.arguments import check_count
from pubsub.client.flows.apart import apart
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.handlers import AsyncHandler, check_handler
from pubsub.client.flows.worker_pool import Found, Source, WorkerPool
from pubsub.client.session import Session


class Tasks:
    """The worker tasks of one call."""

    def __init__(self, pool: WorkerPool[Any], breathe: Callable[[], Awaitable[None]]) -> None:
        self._pool, self._breathe = pool, breathe
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start a worker."""
        task = asyncio.get_running_loop().create_task(self._pool.work(self._breathe))
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # The call raises it.

    async def join(self) -> None:
        """Let no further message begin, cancel the handlers that still run, and wait for them."""
        self._pool.stopping = True
        for task in tuple(self.tasks):
            task.cancel()
        while self.tasks:
            await asyncio.wait(tuple(self.tasks))


async def in_tasks(
    session: Session,
    source: Source[Found],
    handler: AsyncHandler,
    timeout: float | None,
    most: int,
    concurrency: int,
    run: Callable[[Flow[Any]], Awaitable[Any]],
    breathe: Callable[[], Awaitable[None]],
    lead: Callable[[Flow[Any]], Awaitable[Any]] | None = None,
) -> int:
    """Handle messages side by side in tasks; return the number taken.

    Args:
        run: runs a flow.
        lead: runs a flow on the event loop, if `run` does not.
    """
    check_handler(handler, awaits=True)
    check_count("max", most)
    until = session.until(timeout, started := session.now)
    while True:
        ready = await run(source.wait(started, until))
        pool = WorkerPool(session, source, handler, most, concurrency, awaits=True)
        tasks = Tasks(pool, breathe)
        try:
            await apart(session, source.hold)
            taken: int = await (lead or run)(pool.lead(tasks.start))
        finally:
            try:
                await tasks.join()
            finally:
                await apart(session, source.release)
        if taken or not ready:
            return taken
