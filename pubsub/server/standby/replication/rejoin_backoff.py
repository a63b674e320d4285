"""Backoff before the primary waits for a lost standby again: none the first time, longer after each further failure.

A silent standby delays every answer until the primary removes it from the in-sync set. Over an unstable link, or with
an overloaded standby, that would happen all the time. After the first failure the primary therefore waits before it
requires the standby again, twice as long after each failure. Meanwhile it sends the entries as before. After the
standby has been in sync for a long time, its failures no longer count.
"""

from __future__ import annotations

from typing import Final

WAIT_SILENCES_MAX: Final = 16
"""Maximum wait, as a multiple of the silence after which a standby is dropped."""

STEADY_SILENCES: Final = 32
"""Time in sync after which the failures no longer count, as a multiple of the same silence."""


class RejoinBackoff:
    """Failures of the standby in one term.

    Args:
        silence: seconds without acknowledgement after which a standby is dropped.
    """

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._failures = 0
        self._since: float | None = None
        self._until = float("-inf")

    def look(self, now: float, *, in_sync: bool) -> None:
        """Record at every tick whether the standby is in sync.

        Args:
            now: monotonic seconds.
            in_sync: as in the register.
        """
        if in_sync:
            self._since = now if self._since is None else self._since
        elif self._since is not None:
            steady = now - self._since >= STEADY_SILENCES * self._silence
            self._failures, self._since = 0 if steady else self._failures, None
            self.failed(now)

    def failed(self, now: float) -> None:
        """Record that the standby was dropped, or was silent before it was in sync."""
        self._until = now + min(WAIT_SILENCES_MAX, 2**self._failures - 1) * self._silence
        self._failures = min(self._failures + 1, WAIT_SILENCES_MAX)

    def waits(self, now: float) -> bool:
        """Return True if it is too early to require the standby again."""
        return now < self._until
