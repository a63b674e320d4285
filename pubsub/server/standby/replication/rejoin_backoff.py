"""How soon a standby that was lost is waited for again: at once the first time, later each time that it does not last.

Whoever is waited for and silent holds up every answer until it is dropped. Over a link that comes and goes, or from a
machine with too much to do, that would be all the time. So after the first time the primary waits before it requires
the standby again, twice as long after each failure, while it sends it everything as before; and once the standby has
been in sync for a good while its failures count no more.
"""

from __future__ import annotations

from typing import Final

WAIT_SILENCES_MAX: Final = 16
"""The longest wait, in times of the silence after which a standby is dropped."""

STEADY_SILENCES: Final = 32
"""In sync for so long, in the same unit, a standby has no failures behind it."""


class Damping:
    """What is remembered of one term's standby.

    Args:
        silence: seconds for which a standby may acknowledge nothing before it is dropped.
    """

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._failures = 0
        self._since: float | None = None
        self._until = float("-inf")

    def look(self, now: float, *, in_sync: bool) -> None:
        """Take note of whether it is in sync, at every tick.

        Args:
            now: monotonic seconds.
            in_sync: as the register has it.
        """
        if in_sync:
            self._since = now if self._since is None else self._since
        elif self._since is not None:
            steady = now - self._since >= STEADY_SILENCES * self._silence
            self._failures, self._since = 0 if steady else self._failures, None
            self.failed(now)

    def failed(self, now: float) -> None:
        """It was dropped, or was silent before it was in sync."""
        self._until = now + min(WAIT_SILENCES_MAX, 2**self._failures - 1) * self._silence
        self._failures = min(self._failures + 1, WAIT_SILENCES_MAX)

    def waits(self, now: float) -> bool:
        """Whether it is too soon to require it again."""
        return now < self._until
