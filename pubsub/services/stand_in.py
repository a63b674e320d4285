"""Who drives a worker's sockets while its handler runs: a thread that stands in, where that takes long.

The thread that runs the handler drives the sockets too, since to hand each request and each reply from thread to thread
costs more than all else that a short one needs. Heartbeats must go on while a long one runs: so another thread looks
now and then, and drives for as long as the handler does. A lock says whose turn it is.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock, Thread
from typing import Final

from pubsub.services.engine import Engine

LOOK_SECONDS: Final = 0.2
"""Between two looks whether a handler runs, at most; well below the interval of a heartbeat."""


class StandIn:
    """Drives an engine while whoever usually does is away.

    Args:
        engine: open.
        look_seconds: between two looks whether a handler runs.

    Attributes:
        broken: what ended the driving, where something did.
    """

    def __init__(self, engine: Engine, look_seconds: float = LOOK_SECONDS) -> None:
        self._engine, self._look_seconds = engine, look_seconds
        self._turn = Lock()
        self._ended = Event()
        self._away = False
        self._back: deque[bool] = deque()
        """Something is in it where the caller wants to drive again."""
        self._thread = Thread(target=self._look, name="services works", daemon=True)
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Begin to look; the engine is the caller's to drive until `go_away`."""
        self._turn.acquire()
        self._thread.start()

    def go_away(self) -> None:
        """The caller does something else from now on, and does not touch the engine but by `submit`."""
        self._back.clear()
        self._away = True
        self._turn.release()

    def come_back(self) -> None:
        """The caller is back, and drives the engine again."""
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
                except BaseException as error:  # noqa: BLE001 - whatever it is, whoever runs the worker is told.
                    self.broken = error
                    return
                finally:
                    self._turn.release()

    def end(self) -> None:
        """Drive no more."""
        self._ended.set()
        self._back.append(True)
        self._engine.submit(_look_up)
        self._thread.join()


def _look_up(now: float) -> None:
    """Nothing; that it is to be done ends a sleep."""
