"""Does what is due, on an event loop: the same turns for requests that go out and for handlers that are called."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Generic, ParamSpec, Protocol, TypeVar

from pubsub.errors import CallerError, PubsubError
from pubsub.http.core.limits import SWEEP_SECONDS_MAX

AGAIN_SECONDS: Final = 1.0
"""After the disk has failed, this long until it is tried again."""

_log: Final = logging.getLogger("pubsub.http")

P = ParamSpec("P")
T = TypeVar("T")
Name = TypeVar("Name")


class StoreThread:
    """The one thread on which the outbox and the inbox are used: while the disk works, the event loop goes on."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="http-store")
        self._closed = False

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function there. It runs to its end, though whoever waits is cancelled.

        Raises:
            CallerError: it is closed.
        """
        if self._closed:
            raise CallerError("this outbox is closed")
        call = asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*arguments, **named))
        return await asyncio.shield(call)

    def close(self) -> None:
        """Let what was begun come to its end."""
        self._closed = True
        self._pool.shutdown(wait=True)


class Due(Protocol[Name]):
    """What a pump takes from, all of it on the store's thread."""

    def begin(self) -> tuple[list[Name], float | None]:
        """What is to be done now, and in how many seconds to ask again; None: when something ends."""

    def end(self, name: Name) -> None:
        """It was done, whatever came of it."""

    def sweep(self) -> float:
        """Forget what is old; in how many seconds there is more."""


class Pump(Generic[Name]):
    """Calls `do` for whatever is due.

    Args:
        store: the store's thread.
        due: what.
        do: does one of it; its errors are logged.
    """

    def __init__(self, store: StoreThread, due: Due[Name], do: Callable[[Name], Awaitable[None]]) -> None:
        self._store, self._due, self._do = store, due, do
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._turning = asyncio.get_running_loop().create_task(self._turn(), name="http-pump")

    def wake(self) -> None:
        """Something more is due."""
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
            seconds = await self._store(self._due.sweep)
        except PubsubError as error:
            _log.warning("old entries stay for now: %s", error)
            return AGAIN_SECONDS
        return min(max(seconds, AGAIN_SECONDS), SWEEP_SECONDS_MAX)

    async def _one(self, name: Name) -> None:
        try:
            await self._do(name)
        except PubsubError as error:
            _log.warning("%s", error)
        except Exception:  # noqa: BLE001 - whatever it is, it ends neither the others nor the loop.
            _log.exception("a mistake of ours")
        finally:
            await self._store(self._due.end, name)
            self.wake()

    async def close(self) -> None:
        """Stop; what was begun is cancelled."""
        doing = [*self._tasks, *([self._turning] if self._turning is not None else [])]
        for task in doing:
            task.cancel()
        if doing:  # `wait`, and not one after the other: a cancellation of whoever closes is its own, and goes on.
            await asyncio.wait(doing)
