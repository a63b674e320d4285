"""Interrupt a loop only between two of its steps, so that the number of completed steps is known."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Delay signals that would raise until the end of a step, or handle them at once while the loop waits.

    This is a context manager for the main thread. On other threads, and for signals without a Python handler, it does
    nothing. A second signal is handled at once, at any point.

    Attributes:
        came: the last signal; 0: none.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self.came = 0
        self._waits = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if callable(handler := signal.getsignal(number)):
                    self._handlers[number] = handler
                    signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        self._waits = True
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        at_once, self.came = bool(self.came or self._waits), number
        if at_once:
            self._handlers[number](number, frame)

    def check(self) -> None:
        """Handle a delayed signal at the end of a step."""
        if self.came:
            self._handlers[self.came](self.came, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Handle signals at once within the block, in which no step runs."""
        self._waits = True
        try:
            self.check()
            yield
        finally:
            self._waits = False
