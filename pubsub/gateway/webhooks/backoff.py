"""How long a delivery that failed waits: seconds at first, a day at last, twelve attempts in about three days.

Within a process only the monotonic clock counts. Over a restart the wall clock has to, and is not trusted: what is left
to wait is never taken for more than the whole back-off, nor for less than nothing.
"""

from __future__ import annotations

from typing import Final

BACKOFF_SECONDS: Final = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0)
"""After the first attempt, the second …; the last one is for all that follow."""

JITTER: Final = 0.2
"""By which part a back-off may be longer, so that receivers that were down together are not tried together."""


def backoff(attempts: int, chance: float, retry_after: float = 0.0) -> float:
    """Seconds until the next attempt.

    Args:
        attempts: that failed.
        chance: from 0 to 1, drawn.
        retry_after: what the receiver asked for, in seconds; at most the longest back-off counts.
    """
    base = BACKOFF_SECONDS[min(attempts, len(BACKOFF_SECONDS)) - 1]
    return max(base * (1 + JITTER * chance), min(retry_after, BACKOFF_SECONDS[-1]))


def left(attempts: int, due: float, wall: float) -> float:
    """Seconds that are left of a back-off after a restart.

    Args:
        attempts: that failed.
        due: when it is over, seconds since 1970, as it was written down.
        wall: the wall clock now, which may be wrong.
    """
    if not attempts:
        return 0.0
    return min(max(0.0, due - wall), backoff(attempts, 1.0, BACKOFF_SECONDS[-1] if due - wall > 0 else 0.0))
