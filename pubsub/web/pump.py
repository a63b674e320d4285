"""The turns of deliveries on an event loop: outgoing requests, webhooks, and calls of handlers.

`Schedule` decides which deliveries are due and how many run at once. The caller of `Pump` records the result of a try.
The pump begins and ends tries, and repeats a try that raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Generic, ParamSpec, TypeVar

from pubsub.errors import CallerError, PubsubError
from pubsub.web.schedule import Due, Name

AGAIN_SECONDS: Final = 1.0
"""Pause after a disk error."""

SWEEP_SECONDS_MAX: Final = 60.0
"""Longest time between two removals of old entries."""

_log: Final = logging.getLogger("pubsub.web")

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """The one thread that uses the outbox and the inbox. The event loop runs on while the disk works."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="http-store")
        self._closed = False

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function on that thread. It runs to its end, even if the caller is cancelled.

        Raises:
            CallerError: it is closed.
        """
        if self._closed:
            raise CallerError("this outbox is closed; open it again")
        call = asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*arguments, **named))
        return await asyncio.shield(call)

    def close(self) -> None:
        """Wait for the calls that have begun."""
        self._closed = True
        self._pool.shutdown(wait=True)


async def on_loop(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function that never waits for a disk, on the event loop itself."""
    return function(*arguments, **named)


class Pump(Generic[Name]):
    """Calls `do` for each name that is due.

    Args:
        name: of the pump, for the log.
        store: calls `due`: a `StoreThread`, or `on_loop`.
        due: the source of names.
        do: makes one try. An error is logged, and `due.later` is called.
    """

    def __init__(
        self, name: str, store: Callable[..., Awaitable[Any]], due: Due[Name], do: Callable[[Name], Awaitable[None]]
    ) -> None:
        self._name, self._store, self._due, self._do = name, store, due, do
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turning: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin, on the running event loop; the task ends with an error, or is cancelled by `close`."""
        self._turning = asyncio.get_running_loop().create_task(self._turn(), name="pump")
        return self._turning

    def wake(self) -> None:
        self._wake.set()

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        swept = loop.time()
        while True:
            self._wake.clear()
            names, seconds = await self._store(self._due.begin)
            for name in names:
                task = loop.create_task(self._one(name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if loop.time() >= swept:
                swept = loop.time() + await self._sweep()
            wait = max(0.0, swept - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if seconds is None else min(seconds, wait)):
                    await self._wake.wait()

    async def _sweep(self) -> float:
        try:
            seconds: float = await self._store(self._due.sweep)
        except PubsubError as error:
            _log.warning("%s: old entries cannot be removed now, and are tried again: %s", self._name, error)
            return AGAIN_SECONDS
        return min(max(seconds, AGAIN_SECONDS), SWEEP_SECONDS_MAX)

    async def _one(self, name: Name) -> None:
        try:
            await self._do(name)
        except PubsubError as error:
            _log.warning("%s: %s", self._name, error)
            await self._store(self._due.later, name)
        except Exception:  # noqa: BLE001 - no error ends the other tries or the loop.
            _log.exception("%s: internal error; the try is repeated", self._name)
            await self._store(self._due.later, name)
        finally:
            await self._store(self._due.end, name)
            self.wake()

    async def close(self) -> None:
        """Stop, and cancel the tries that have begun."""
        doing = [*self._tasks, *([self._turning] if self._turning is not None else [])]
        for task in doing:
            task.cancel()
        if doing:  # Not awaited one by one: a cancellation of this call must not be taken for theirs.
            await asyncio.wait(doing)
