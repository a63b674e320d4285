"""Choose, by the pace of the handler, how many records a member takes ahead, and whether they come claimed.

A claimed record of a killed process is in doubt until its directory is back. So a member takes ahead as many records as
its handlers do in AHEAD_SECONDS. If one record takes longer than that, records are only offered, and each is
claimed before its effect (docs/explanation/client-session.md, D14).
"""

from __future__ import annotations

from typing import Final

from pubsub.base.limits import CLAIMED_RECORDS_MAX

AHEAD_SECONDS: Final = 0.1
"""Time for which the handlers have work ahead."""

WEIGHT: Final = 0.2
"""Weight of the latest record in the mean."""


class Pace:
    """The time that a handler takes for a record.

    Attributes:
        seconds: mean time for a record; None: none was handled yet.
        fast: True if a record takes less than AHEAD_SECONDS.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.fast = False

    def took(self, seconds: float) -> None:
        """Take account of one record."""
        if self.seconds is None:
            self.seconds = seconds
        else:
            self.seconds += WEIGHT * (seconds - self.seconds)
        self.fast = self.seconds < AHEAD_SECONDS

    def ahead(self, workers: int) -> int:
        """Return the number of records that so many handlers do in AHEAD_SECONDS; one each at least."""
        if not self.fast or self.seconds is None:
            return workers
        least = AHEAD_SECONDS / CLAIMED_RECORDS_MAX
        return min(CLAIMED_RECORDS_MAX // 2, max(workers, int(workers * AHEAD_SECONDS / max(self.seconds, least))))
