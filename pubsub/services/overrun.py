"""A handler that hangs: Python cannot stop a function, so the process ends, and another worker gets the work.

A thread looks whether the handler has run for too long. It lives as long as the worker runs, and is asked for where the
worker has a handler time-out only. A handler that never gives the interpreter to other threads is not seen.
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
"""For the worker's good-bye, by which a broker gives the work to another one."""

LINGER_SECONDS: Final = 0.2
"""For that message to leave."""

EXIT_SECONDS: Final = 5.0
"""After which the process ends in any case: the handler may hang while it has the lock of the log."""

CANCEL_SECONDS: Final = 5.0
"""For a coroutine that is cancelled to end."""

_log: Final = logging.getLogger("pubsub.services")


class Overrun:
    """Ends the process where a handler runs for too long.

    Args:
        service: its name, for the log.
        seconds: that a handler may run; None: nothing is looked for.
        leave: says good-bye, and sets the event when that is on its way.
    """

    def __init__(self, service: str, seconds: float | None, leave: Callable[[Event], object]) -> None:
        self._service, self._seconds, self._leave = service, seconds, leave
        self._ended = Event()
        self._due: float | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._seconds is not None:
            self._thread = Thread(target=self._look, name="services watches", daemon=True)
            self._thread.start()

    def begin(self, more_seconds: float = 0.0) -> None:
        """A handler runs from now on, and may for `more_seconds` more than is usual."""
        if self._seconds is not None:
            self._due = time.monotonic() + self._seconds + more_seconds

    def end(self) -> None:
        """It does not any more."""
        self._due = None

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        assert self._seconds is not None
        left = self._seconds  # Whatever begins meanwhile may take as long.
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
