"""The handler time-out of a function. Python cannot stop one, so the process ends, and another worker gets its work.

A thread checks how long the handler has run. It exists only if the worker has a handler time-out. A handler that never
releases Python's interpreter lock is not noticed.

The rule is docs/explanation/services-engine.md, E9.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from threading import Event, Thread, Timer
from typing import Final

from pubsub.services.errors import HandlerOverran

GOODBYE_SECONDS: Final = 1.0
"""Time limit for the worker's goodbye, so that a broker gives its work to other workers at once."""

LINGER_SECONDS: Final = 0.2
"""Time for that message to leave."""

EXIT_SECONDS: Final = 5.0
"""After this time the process ends in any case: the handler may hang while it holds a lock of the log."""

CANCEL_SECONDS: Final = 5.0
"""Time for a cancelled coroutine to end."""

_log: Final = logging.getLogger("pubsub.services")


class Overrun:
    """Ends the process if a handler runs for too long.

    Args:
        service: name of the service, for the log.
        seconds: time limit of a handler; None: nothing is checked.
        leave: sends the goodbye, and sets the event once it is on its way.
    """

    def __init__(self, service: str, seconds: float | None, leave: Callable[[Event], object]) -> None:
        self._service, self._seconds, self._leave = service, seconds, leave
        self._ended = Event()
        self._due: float | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        if self._seconds is not None:
            self._thread = Thread(target=self._look, name="services watches", daemon=True)
            self._thread.start()

    def begin(self, more_seconds: float = 0.0) -> None:
        """Start the time of a handler, with `more_seconds` added to the limit."""
        if self._seconds is not None:
            self._due = time.monotonic() + self._seconds + more_seconds

    def end(self) -> None:
        self._due = None

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        assert self._seconds is not None
        left = self._seconds  # A handler that starts during the wait has the same limit.
        while not self._ended.wait(left):
            due = self._due
            left = self._seconds if due is None else min(self._seconds, due - time.monotonic())
            if left <= 0 and due == self._due:
                self._exit()

    def _exit(self) -> None:
        code, exits = HandlerOverran.exit_code, Timer(EXIT_SECONDS, os._exit, (HandlerOverran.exit_code,))
        exits.daemon = True
        exits.start()
        assert self._seconds is not None
        _log.critical("%s; this worker ends with exit code %d", HandlerOverran(self._service, self._seconds), code)
        gone = Event()
        self._leave(gone)
        if gone.wait(GOODBYE_SECONDS):
            time.sleep(LINGER_SECONDS)
        logging.shutdown()
        os._exit(code)
