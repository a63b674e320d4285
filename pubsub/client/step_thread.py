"""Run the steps of an `AsyncClient`'s session on a thread of their own, if its commits are round trips to a database.

The event loop goes on meanwhile. Steps run one at a time in the order in which they were given, so puts that come while
a commit is under way share the next one.

A step is not interrupted by a cancellation: its caller waits for its outcome. If the step has completed the call, the
call returns its result, and the cancellation reaches the caller's next `await`. So no message is lost that a call has
taken.

The rule is docs/explanation/databases.md, DB12.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

Returned = TypeVar("Returned")

_log: Final = logging.getLogger("pubsub.client")


class StepThread:
    """The thread of one session.

    Args:
        name: the client ID.
        recover: releases the session's locks on this thread after an exception.
    """

    def __init__(self, name: str, recover: Callable[[], None]) -> None:
        self._name, self._recover = name, recover
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"steps of {name}")

    async def run(self, work: Callable[[], Returned]) -> Returned:
        """Run a step, and return its result. A cancellation meanwhile reaches the next `await` of the task."""
        waiting = asyncio.wrap_future(self._executor.submit(self._step, work))
        cancelled = False
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled and (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().call_soon(_cancel_again, task)
        return waiting.result()

    def submit(self, work: Callable[[], None]) -> None:
        """Run a step later; its exception is logged."""
        self._executor.submit(self._logged, work)

    def stop(self) -> None:
        """End the thread after its steps."""
        self._executor.shutdown(wait=False)

    def _step(self, work: Callable[[], Returned]) -> Returned:
        try:
            return work()
        except BaseException:
            self._recover()
            raise

    def _logged(self, work: Callable[[], None]) -> None:
        try:
            self._step(work)
        except Exception as error:  # noqa: BLE001 - each caller finds its own result.
            _log.warning("client %s: %s", self._name, error)


def _cancel_again(task: asyncio.Task[object]) -> None:
    """Let a task have the cancellation that its step has kept from it, unless that was taken back since."""
    if task.cancelling() and not task.done():
        task.uncancel()
        task.cancel()


def step_thread(name: str, recover: Callable[..., None]) -> StepThread:
    """Make the thread of a session."""
    return StepThread(name, partial(recover, handled=True))
