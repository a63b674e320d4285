"""Heartbeats are taken many at a time: to wake for each of a thousand idle workers' costs more than all else.

Where messages come often and bring nothing to be done, they are left to gather for NAP_SECONDS. As soon as there is
work again, each is taken as it comes: the first call after a lull may wait that long, and none where workers are few.
"""

from __future__ import annotations

from typing import Final

NAP_SECONDS: Final = 0.02

MESSAGES_MAX: Final = 100
"""Messages in a second for which nothing was to be done, above which they are left to gather."""

WORK_SECONDS: Final = 0.25
"""So long after the last work there is no nap."""


class Lull:
    """Whether it is worth while to wake for each message."""

    def __init__(self) -> None:
        self._worked_at = self._since = float("-inf")
        self._idle = self._idle_before = 0

    def took(self, messages: int, now: float, *, worked: bool) -> None:
        """Messages were taken, and something was to be done for them, or nothing."""
        if worked:
            self._worked_at = now
        else:
            self._idle += messages

    def nap(self, now: float) -> float:
        """How long to leave messages alone, in seconds; 0: not at all."""
        if now - self._since >= 1.0:
            self._idle_before = self._idle if now - self._since < 2.0 else 0
            self._since, self._idle = now, 0
        if self._idle_before < MESSAGES_MAX or now - self._worked_at < WORK_SECONDS:
            return 0.0
        return NAP_SECONDS
