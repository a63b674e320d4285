"""What the coroutines of a client wait for, looked at by whatever thread may have brought it about.

All whose time has come by one turn are woken by one message to their event loop, and nobody else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final
from weakref import WeakKeyDictionary, WeakMethod

from pubsub.client.flows.flow import Wait
from pubsub.client.session import Session

_Future = asyncio.Future[None]


def _finish(futures: list[_Future]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _if_alive(ring: WeakMethod[Callable[..., None]], loop: asyncio.AbstractEventLoop, deadline: float) -> None:
    """An alarm rings, which does not keep the client alive."""
    if (found := ring()) is not None:
        found(loop, deadline)


class Awaited:
    """The waits of one client's coroutines."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._waits: dict[_Future, Wait] = {}
        self._rings: WeakKeyDictionary[asyncio.AbstractEventLoop, list[float]] = WeakKeyDictionary()
        """When the alarms of each event loop ring, on the session's clock: each earlier than the one before it."""
        session.watchers.append(self._look)

    def _look(self) -> None:
        """Wake those who have what they wait for. From any thread; adding and removing waits needs no lock."""
        if not self._waits:
            return
        over: dict[asyncio.AbstractEventLoop, list[_Future]] = {}
        for future, wait in tuple(self._waits.items()):
            if wait.done() and self._waits.pop(future, None) is not None:
                over.setdefault(future.get_loop(), []).append(future)
        for loop, futures in over.items():
            with suppress(RuntimeError):  # The event loop was closed, so no coroutine waits any more.
                loop.call_soon_threadsafe(_finish, futures)

    async def wait(self, wait: Wait) -> bool:
        """Wait for something, or until its deadline; whether it has come about.

        `asyncio.wait_for` is not used: on Python 3.11 it returns, as if nothing had been, where a cancellation comes in
        the same turn of the loop as the result.
        """
        loop = asyncio.get_running_loop()
        future: _Future = loop.create_future()
        self._waits[future] = wait
        try:
            if wait.done():  # It may have come about before anybody looked.
                return True
            if wait.deadline < self._next_ring(loop):
                self._set_alarm(loop, wait.deadline)
            await future
        finally:
            self._waits.pop(future, None)
        return wait.done()

    def _next_ring(self, loop: asyncio.AbstractEventLoop) -> float:
        pending = self._rings.get(loop)
        return pending[-1] if pending else inf

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Have those be woken whose time is over by then: a timer for each would cost as much as all else of a put."""
        left = max(0.0, deadline - self._session.now)
        loop.call_later(left, _if_alive, WeakMethod(self._ring), loop, deadline)
        # Behind that: an exception that strikes in between leaves one alarm too many, and not one too few.
        self._rings.setdefault(loop, []).append(deadline)

    def _ring(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        left = at  # Where an exception strikes before they were looked at, it rings again at once.
        try:
            now = self._session.now
            waits = [(future, wait) for future, wait in tuple(self._waits.items()) if future.get_loop() is loop]
            _finish([future for future, wait in waits if wait.deadline <= now])
            left = min([wait.deadline for _, wait in waits if wait.deadline > now], default=inf)
        finally:
            pending = self._rings.get(loop, [])
            while pending and pending[-1] <= at:
                pending.pop()
            if left < self._next_ring(loop):
                self._set_alarm(loop, left)
