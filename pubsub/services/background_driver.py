"""A second thread for a worker's sockets, so that heartbeats continue while its handler runs.

The handler's thread also drives the sockets: a transfer of each request and reply between threads would cost more than
a short handler. During a long handler the second thread drives them. It checks at intervals whether a handler runs. A
lock decides which of the two threads drives.

The rule is docs/explanation/services-engine.md, E8.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock, Thread
from typing import Final

from pubsub.services.engine import Engine

LOOK_SECONDS: Final = 0.2
"""Longest interval between two checks whether a handler runs, well below a heartbeat interval."""


class BackgroundDriver:
    """Drives an engine while its usual thread runs a handler.

    Args:
        engine: an open engine.
        look_seconds: interval between two checks whether a handler runs.

    Attributes:
        broken: the error that ended the driving, if there was one.
    """

    def __init__(self, engine: Engine, look_seconds: float = LOOK_SECONDS) -> None:
        self._engine, self._look_seconds = engine, look_seconds
        self._turn = Lock()
        self._ended = Event()
        self._away = False
        self._back: deque[bool] = deque()
        """Not empty while the caller waits to drive again."""
        self._thread = Thread(target=self._look, name="services works", daemon=True)
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Start the thread; the caller drives the engine until `suspend`."""
        self._turn.acquire()
        self._thread.start()

    def suspend(self) -> None:
        """Suspend the caller's driving: from now on it touches the engine with `submit` only."""
        self._back.clear()
        self._away = True
        self._turn.release()

    def resume(self) -> None:
        """Resume the caller's driving."""
        self._away = False
        self._back.append(True)
        if not self._turn.acquire(blocking=False):
            self._engine.submit(_look_up)
            self._turn.acquire()

    def _look(self) -> None:
        while not self._ended.wait(self._look_seconds):
            if self._away and self._turn.acquire(blocking=False):
                try:
                    self._engine.run(self._back)
                except BaseException as error:  # noqa: BLE001 - any error must reach the caller of `run`.
                    self.broken = error
                    return
                finally:
                    self._turn.release()

    def end(self) -> None:
        self._ended.set()
        self._back.append(True)
        self._engine.submit(_look_up)
        self._thread.join()


def _look_up(now: float) -> None:
    """Do nothing: any action ends the engine's sleep."""
