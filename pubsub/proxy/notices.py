"""What a proxy has to say to its operator, at a bounded rate.

A peer that misbehaves ten thousand times a second must not fill the log: one subject is said at most once a minute, and
all together never more than LINES_MAX lines a minute. The last few stay readable in the report.
"""

from __future__ import annotations

from collections import deque
from typing import Final

REPEAT_SECONDS: Final = 60.0
LINES_MAX: Final = 60
SUBJECTS_MAX: Final = 1_024
RECENT_MAX: Final = 50


class Routine(str):
    """A line that tells of what happens in every cluster, and asks nothing of the operator."""

    __slots__ = ()


class Notices:
    """Lines for the log.

    Attributes:
        lines: not logged yet; whoever logs them takes them out with `take`.
        recent: the last ones with the time they were said.
        left_out: how many were not said because of the rate.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.recent: deque[tuple[float, str]] = deque(maxlen=RECENT_MAX)
        self.left_out = 0
        self._said: dict[str, float] = {}
        self._minute = float("-inf")
        self._count = 0

    def say(self, subject: str, text: str, now: float) -> None:
        """Say `text`, unless something was said on this subject within REPEAT_SECONDS or there was too much of all."""
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
        """The subject is over: when it comes up again it is news."""
        self._said.pop(subject, None)

    def take(self) -> list[str]:
        """The lines to log now."""
        lines, self.lines = self.lines, []
        return lines
