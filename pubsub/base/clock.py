"""Clocks as arguments: cores are told what time it is, and stamps never run backwards.

A stamp is what orders records between servers in a join (docs/architecture.md, *Topics and logs*): the wall clock, read
once when the process starts and then advanced by the monotonic clock, always above every stamp given out before and
above the highest one heard of from others. A wall clock that jumps while the process runs therefore changes nothing.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from pubsub.errors import ConfigurationError

MICROSECONDS: Final = 1_000_000
STAMP_LEAD_MAX: Final = 3600 * MICROSECONDS
"""A stamp heard of that is further ahead of our clock than this is reported, not followed (microseconds)."""


EPOCH_SECONDS: Final = 1_577_836_800
"""2020-01-01 00:00 UTC in seconds since 1970, where the milliseconds of numbers begin."""

WALL_SECONDS_MAX: Final = EPOCH_SECONDS + (1 << 41) // 1000 - 1
"""2089-09-06, where the 41 bits of the milliseconds of numbers end (docs/architecture.md, *Numbers*)."""


class Clock(Protocol):
    """Where a shell gets the time that it hands to its core."""

    def monotonic(self) -> float:
        """Seconds that only ever grow; the `now` of every core."""

    def wall(self) -> float:
        """Seconds since 1970."""


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()


def sound_wall(wall: float) -> float:
    """Seconds since 1970, if a clock can say so.

    Nothing is written by a clock that cannot: numbers and stamps go on above the highest one that was ever given out,
    so that one wrong clock would stay with a directory for good.

    Raises:
        ConfigurationError: they are beyond WALL_SECONDS_MAX.
    """
    if wall <= WALL_SECONDS_MAX:
        return wall
    raise ConfigurationError(
        f"the clock of this machine is wrong: it says {wall:.0f} s since 1970, and numbers end at {WALL_SECONDS_MAX} s,"
        " in 2089; set the clock and start again"
    )


class Stamps:
    """Gives out stamps, microseconds since 1970 and strictly rising: a hybrid logical clock (Kulkarni et al., 2014).

    It follows physical time as long as that rises, and goes on above the highest stamp that it gave out or heard of
    where it does not. Time and count are one number here: a stamp that the clock has not reached is counted up by one
    microsecond. So stamps order what happened one after the other, as a logical clock's do, and stay within the skew of
    the clocks (docs/architecture.md, *Topics and logs* and *Sources*).

    Args:
        wall: seconds since 1970, read once.
        now: the monotonic clock at that moment, in seconds.
        last: the highest stamp known from before, in microseconds.
    """

    def __init__(self, wall: float, now: float, last: int = 0) -> None:
        self._offset = wall - now
        self.last = last

    def reading(self, now: float) -> int:
        """The clock in microseconds at `now`, which does not give a stamp out."""
        return max(int((now + self._offset) * MICROSECONDS), self.last)

    def age(self, stamp: int, now: float) -> float:
        """Seconds since a stamp was given out, by this clock; 0 where it lies in the future."""
        return max(0, self.reading(now) - stamp) / MICROSECONDS

    def next(self, now: float) -> int:
        """A stamp above every other that was given out or heard of."""
        self.last = max(int((now + self._offset) * MICROSECONDS), self.last + 1)
        return self.last

    def hear(self, stamp: int, now: float) -> bool:
        """Take note of a stamp from elsewhere; False where it is too far ahead and was not followed."""
        if stamp > int((now + self._offset) * MICROSECONDS) + STAMP_LEAD_MAX:
            return False
        self.last = max(self.last, stamp)
        return True
