"""What the coroutines of a client wait for, looked at by whatever thread may have brought it about.

All whose time has come by one turn are woken by one message to their event loop, and nobody else is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import Final

from pubsub.client.flows.flow import Wait
from pubsub.client.session import Session

_Future = asyncio.Future[None]


def _finish(futures: list[_Future]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Awaited:
    """The waits of one client's coroutines."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._waits: dict[_Future, Wait] = {}
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
        timer = None
        try:
            if not wait.done():  # It may have come about before anybody looked.
                left = wait.deadline - self._session.now
                if left < inf:
                    timer = loop.call_later(max(0.0, left), _finish, [future])
                await future
        finally:
            self._waits.pop(future, None)
            if timer is not None:
                timer.cancel()
        return wait.done()
