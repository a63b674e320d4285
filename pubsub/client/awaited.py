"""Let coroutines wait for conditions that any thread may bring about.

All coroutines with a condition that became true in one turn are woken by one message to their event loop, and no
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import floor, inf
from typing import Final
from weakref import WeakKeyDictionary, WeakMethod

from pubsub.client.flows.flow import Wait
from pubsub.client.session import Session

_NONE: Final = (inf,)

_Future = asyncio.Future[bool]
"""The future of a waiting coroutine; its result is True if the condition was met."""


def _finish(futures: list[_Future], done: bool) -> None:
    for future in futures:
        if not future.done():
            future.set_result(done)


def _if_alive(ring: WeakMethod[Callable[..., None]], loop: asyncio.AbstractEventLoop, deadline: float) -> None:
    """Ring an alarm, unless its client was collected: the alarm does not keep the client alive."""
    if (found := ring()) is not None:
        found(loop, deadline)


class Awaited:
    """The waiting coroutines of one client."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._waits: dict[_Future, Wait] = {}
        self._woken: dict[_Future, Wait] = {}
        """Waits that were reported to their event loop. An exception may prevent the report, so alarms check them."""
        self._rings: WeakKeyDictionary[asyncio.AbstractEventLoop, list[float]] = WeakKeyDictionary()
        """Times of the alarms of each event loop, on the session's clock: infinity, then earlier and earlier ones."""
        self._rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, set[float]] = WeakKeyDictionary()
        """Times of second alarms, one or two seconds after the first. An event loop only logs an exception that comes
        during the first alarm, which would then wake no coroutine."""
        session.watchers.append(self._look)

    def _look(self) -> None:
        """Wake the coroutines with a met condition. Any thread may call this; waits come and go without a lock."""
        if not self._waits:
            return
        over: dict[asyncio.AbstractEventLoop, list[_Future]] = {}
        for future, wait in tuple(self._waits.items()):
            if wait.done():
                self._woken[future] = wait  # Before the removal below, so that it is always in one of the two.
                if self._waits.pop(future, None) is not None:
                    over.setdefault(future.get_loop(), []).append(future)
        for loop, futures in over.items():
            with suppress(RuntimeError):  # The event loop was closed, so no coroutine waits any more.
                loop.call_soon_threadsafe(_finish, futures, True)

    async def wait(self, wait: Wait) -> bool:
        """Wait for a condition or its deadline; return True if the condition was met.

        `asyncio.wait_for` is not used: on Python 3.11 it returns normally if a cancellation comes in the same turn of
        the loop as the result.
        """
        loop = asyncio.get_running_loop()
        future: _Future = loop.create_future()
        self._waits[future] = wait
        try:
            if wait.done():  # The condition may have been met before this wait was registered.
                return True
            if wait.deadline < self._rings.get(loop, _NONE)[-1]:
                self._set_alarm(loop, wait.deadline)
            done = await future
        finally:
            self._waits.pop(future, None)
            self._woken.pop(future, None)
        return done or wait.done()

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Wake, at the deadline, all coroutines with an expired wait; a timer for each would double a put's cost."""
        now, ring = self._session.now, WeakMethod(self._ring)
        again, rounds = floor(deadline) + 2, self._rounds.setdefault(loop, set())
        pending = self._rings.setdefault(loop, [inf])
        loop.call_later(max(0.0, deadline - now), _if_alive, ring, loop, deadline)
        if again not in rounds:
            loop.call_later(max(0.0, again - now), _if_alive, ring, loop, again)
            rounds.add(again)
        # Last, so that an exception in between leaves one alarm too many, and not one too few.
        pending.append(deadline)

    def _ring(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        left = at  # If an exception comes before the waits are checked, the alarm rings again at once.
        try:
            now = self._session.now
            woken = [future for future in tuple(self._woken) if future.get_loop() is loop]
            _finish(woken, True)
            for future in woken:
                self._woken.pop(future, None)
            waits = [(future, wait) for future, wait in tuple(self._waits.items()) if future.get_loop() is loop]
            _finish([future for future, wait in waits if wait.deadline <= now], False)
            left = min([wait.deadline for _, wait in waits if wait.deadline > now], default=inf)
        finally:
            self._rounds[loop].discard(at)
            pending = self._rings[loop]
            while pending[-1] <= at:
                pending.pop()
            if left < pending[-1]:
                self._set_alarm(loop, left)
