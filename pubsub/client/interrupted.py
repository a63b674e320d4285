"""A loop that is interrupted between two of its steps, so that it is known how many there were."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles signals that would raise at the end of the step that they strike, or at once where it waits.

    A context manager for the main thread; elsewhere, and for signals that no handler of Python has, it does nothing.
    A second signal is handled at once, wherever it strikes.

    Attributes:
        came: the signal that came last; 0: none.
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
                    signal.signal(number, self._struck)
        return self

    def __exit__(self, *_: object) -> None:
        self._waits = True
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _struck(self, number: int, frame: FrameType | None) -> None:
        at_once, self.came = bool(self.came or self._waits), number
        if at_once:
            self._handlers[number](number, frame)

    def check(self) -> None:
        """A step has ended: handle a signal that came meanwhile."""
        if self.came:
            self._handlers[self.came](self.came, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the block nothing is done that counts: signals are handled at once."""
        self._waits = True
        try:
            self.check()
            yield
        finally:
            self._waits = False
