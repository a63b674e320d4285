"""Log lines for the proxy's operator, at a bounded rate.

A peer that misbehaves ten thousand times a second must not fill the log. Each subject is logged at most once a minute,
and all subjects together have at most LINES_MAX lines a minute. The report has the last few lines.
"""

from __future__ import annotations

from collections import deque
from typing import Final

REPEAT_SECONDS: Final = 60.0
LINES_MAX: Final = 60
SUBJECTS_MAX: Final = 1_024
RECENT_MAX: Final = 50


class Routine(str):
    """A line about a normal event, which needs no action of the operator."""

    __slots__ = ()


class Notices:
    """Lines for the log.

    Attributes:
        lines: not logged yet; `take` empties it.
        recent: the last lines with their times.
        left_out: number of lines dropped because of the rate.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.recent: deque[tuple[float, str]] = deque(maxlen=RECENT_MAX)
        self.left_out = 0
        self._said: dict[str, float] = {}
        self._minute = float("-inf")
        self._count = 0

    def say(self, subject: str, text: str, now: float) -> None:
        """Add `text`, unless the subject had a line within REPEAT_SECONDS or the rate is exceeded."""
        if now - self._said.get(subject, float("-inf")) < REPEAT_SECONDS:
            return
        if now - self._minute >= REPEAT_SECONDS:
            self._minute, self._count = now, 0
        if self._count >= LINES_MAX:
            self.left_out += 1
            return
        self._count += 1
        if len(self._said) >= SUBJECTS_MAX:
            del self._said[next(iter(self._said))]
        self._said.pop(subject, None)
        self._said[subject] = now
        self.lines.append(text)
        self.recent.append((now, text))

    def settled(self, subject: str) -> None:
        """End a subject, so that its next line is logged at once."""
        self._said.pop(subject, None)

    def take(self) -> list[str]:
        """Return the lines to log, and empty the list."""
        lines, self.lines = self.lines, []
        return lines
