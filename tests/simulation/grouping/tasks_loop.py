"""An event loop of one simulated process: tasks in virtual time, in an order that is always the same."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

CLOSES_MAX = 10
"""Times that a coroutine may wait for something while it is closed."""


class SimulatedTask:
    """A coroutine that runs on a `TaskLoop`, with the part of a task's methods that the client uses."""

    def __init__(self, loop: TaskLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._loop, self._coroutine = loop, coroutine
        self._ended: list[Callable[[Any], None]] = []
        self._waits_for: asyncio.Future[Any] | None = None
        self._must_cancel = self._cancelled = self._done = False
        self._error: BaseException | None = None
        self._result: Any = None
        loop.call_soon(self._step)

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def add_done_callback(self, callback: Callable[[Any], None], context: Any = None) -> None:
        if self._done:
            self._loop.call_soon(callback, self)
        else:
            self._ended.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], None]) -> int:
        before = len(self._ended)
        self._ended = [one for one in self._ended if one != callback]
        return before - len(self._ended)

    def cancel(self) -> bool:
        if self._done:
            return False
        self._must_cancel = True
        if self._waits_for is not None:
            self._waits_for.cancel()
        return True

    def close(self) -> None:
        """End its coroutine."""
        if not self._done:
            self._done = True
            for _ in range(CLOSES_MAX):
                try:
                    self._coroutine.close()
                except RuntimeError:  # It waits for something in a `finally`.
                    continue
                except BaseException:  # noqa: BLE001 - its disk is gone.
                    return
                return

    def _step(self, future: Any = None) -> None:
        if self._done:
            return
        self._waits_for = None
        try:
            if self._must_cancel:
                self._must_cancel = False
                waits = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits = self._coroutine.send(None)
        except StopIteration as stop:
            self._result = stop.value
        except asyncio.CancelledError:
            self._cancelled = True
        except BaseException as error:  # noqa: BLE001 - whoever started it asks for it.
            self._error = error
        else:
            assert waits._asyncio_future_blocking
            waits._asyncio_future_blocking = False
            self._waits_for = waits
            waits.add_done_callback(self._step)
            if self._must_cancel:
                waits.cancel()
            return
        self._done = True
        for callback in self._ended:
            self._loop.call_soon(callback, self)
        self._ended = []


class TaskLoop(asyncio.AbstractEventLoop):
    """The loop of one life of a process.

    Args:
        alive: returns False once the process was killed: nothing of it runs any more.
    """

    def __init__(self, alive: Callable[[], bool]) -> None:
        self._alive = alive
        self._ready: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._tasks: list[SimulatedTask] = []
        self.running = False

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what a killed process leaves behind."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:  # type: ignore[override]
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(SimulatedTask(self, coroutine))
        return self._tasks[-1]

    def close(self) -> None:
        """End what a dead process has left, none of which reaches its disk any more."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks[::-1]:
                task.close()
        finally:
            asyncio._set_running_loop(before)

    def call_soon(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        self._ready.append((callback, arguments))

    def run_ready(self) -> bool:
        """Run what is ready; return True if there was something."""
        if not self._ready:
            return False
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                callback, arguments = self._ready.popleft()
                callback(*arguments)
                if not self._alive():
                    break
        finally:
            asyncio._set_running_loop(before)
        return True
