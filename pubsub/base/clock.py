"""Clocks as arguments: cores get the time from their caller, and timestamps never run backwards.

A timestamp orders records of different servers in a merge (docs/explanation/numbers.md, *Stamps*). It is the wall
clock, read once when the process starts and then advanced by the monotonic clock. It is always above every timestamp
assigned before, and above the highest one received from other processes. So a jump of the wall clock in a running
process has no effect.

The rules are those of docs/explanation/numbers.md, N6 and N7.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from pubsub.errors import ConfigurationError

MICROSECONDS: Final = 1_000_000
STAMP_LEAD_MAX: Final = 3600 * MICROSECONDS
"""Microseconds. A received timestamp that is further ahead of our clock is reported and does not advance ours."""


EPOCH_SECONDS: Final = 1_577_836_800
"""2020-01-01 00:00 UTC in seconds since 1970, the origin of the milliseconds in numbers."""

WALL_SECONDS_MAX: Final = EPOCH_SECONDS + (1 << 41) // 1000 - 1
"""2089-09-06, the last day for the 41 bits of the milliseconds in numbers.

See docs/explanation/numbers.md, *One allocator*.
"""


class Clock(Protocol):
    """The source of the time that a shell passes to its core."""

    def monotonic(self) -> float:
        """Seconds that never decrease; the `now` of every core."""

    def wall(self) -> float:
        """Seconds since 1970."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> float:
        return time.time()


def valid_wall(wall: float) -> float:
    """Return `wall`, seconds since 1970, if it is plausible.

    A process with a wrong clock must write nothing. Numbers and timestamps continue above the highest one ever
    assigned, so a wrong one would stay in the directory permanently.

    Raises:
        ConfigurationError: it is beyond WALL_SECONDS_MAX.
    """
    if wall <= WALL_SECONDS_MAX:
        return wall
    raise ConfigurationError(
        f"the clock of this machine is wrong: it says {wall:.0f} s since 1970, and numbers end at {WALL_SECONDS_MAX} s,"
        " in 2089; set the clock and start again"
    )


class Stamps:
    """Assigns timestamps, microseconds since 1970 and strictly rising: a hybrid logical clock (Kulkarni et al., 2014).

    A timestamp follows physical time as long as that rises. Otherwise it continues above the highest timestamp that was
    assigned or received. Time and count are one number here: if the clock is not above the last timestamp, the next one
    is a microsecond above it. So timestamps order events like those of a logical clock, and stay within the skew of the
    clocks (docs/explanation/numbers.md, *Stamps*; docs/architecture.md, *Sources*).

    Args:
        wall: seconds since 1970, read once.
        now: the monotonic clock at that moment, in seconds.
        last: the highest timestamp known from before, in microseconds.
    """

    def __init__(self, wall: float, now: float, last: int = 0) -> None:
        self._offset = wall - now
        self.last = last

    def reading(self, now: float) -> int:
        """Return the clock in microseconds at `now` without assigning a timestamp."""
        return max(int((now + self._offset) * MICROSECONDS), self.last)

    def clock(self, now: float) -> int:
        """Return the clock of this host in microseconds at `now`, whatever timestamps were assigned or received."""
        return max(0, int((now + self._offset) * MICROSECONDS))

    def age(self, stamp: int, now: float) -> float:
        """Return the seconds since a timestamp was assigned, by this clock; 0 if it is in the future."""
        return max(0, self.reading(now) - stamp) / MICROSECONDS

    def next(self, now: float) -> int:
        """Return a timestamp above every other that was assigned or received."""
        self.last = max(int((now + self._offset) * MICROSECONDS), self.last + 1)
        return self.last

    def follow(self, stamp: int, now: float) -> bool:
        """Take in a timestamp of another process; return False if it is too far ahead and was ignored."""
        if stamp > int((now + self._offset) * MICROSECONDS) + STAMP_LEAD_MAX:
            return False
        self.last = max(self.last, stamp)
        return True
