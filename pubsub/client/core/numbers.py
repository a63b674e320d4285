"""Allocate the client's 63-bit numbers (docs/explanation/numbers.md, N1).

A number is 41 bits of milliseconds since 2020 and 22 bits of a count. The milliseconds are durable before the first
number with them is used, and later milliseconds are always above the stored ones. So no number is ever used twice, even
after a crash, a power cut or a wrong clock. The count starts at a random value in its lower half. So two copies of one
state directory get different numbers even if they are opened in the same millisecond. Nothing else about numbers needs
a disk: one fsync covers at least two million numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pubsub.base.clock import EPOCH_SECONDS, valid_wall
from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import PubsubError

if TYPE_CHECKING:
    from random import Random

COUNT_BITS: Final = 22
COUNTS: Final = 1 << COUNT_BITS
START_MAX: Final = 1 << 21
BEHIND_MAX: Final = 1 << 12
"""Largest random step, in milliseconds, of the next numbers if the clock is behind them."""

NEAR_MAX: Final = 64
"""Largest lag of the clock, in milliseconds, that counts as a quick reopening of the client, not as a wrong clock."""

KNOWN_MAX: Final = 64
"""Number of remembered milliseconds; each opening of a client uses new ones (docs/explanation/numbers.md, N2)."""


def and_then(known: Sequence[int], milliseconds: int) -> list[int]:
    """Append the milliseconds of new numbers to the known ones, and keep the last KNOWN_MAX."""
    return [*known, milliseconds][-KNOWN_MAX:]


class Numbers:
    """Allocates rising numbers, and none of them twice.

    Args:
        stored: the durable milliseconds of earlier numbers; 0: none.
        wall: returns seconds since 1970.
        random: source of the count's start.
        save: makes new milliseconds durable, fsynced, before it returns.
        earlier: the milliseconds of all earlier numbers from the first one on, up to `stored`.

    Attributes:
        epoch: the session epoch (`opening` on the wire), the first number since the client was opened. If two clients
            with one name are open, the later one continues.

    Raises:
        StorageError: from `save`.
    """

    def __init__(
        self,
        stored: int,
        wall: Callable[[], float],
        random: Random,
        save: Callable[[int], None],
        earlier: Sequence[int] = (),
    ) -> None:
        self._milliseconds, self._wall, self._random, self._save = stored, wall, random, save
        self.known = [*earlier] or [stored]
        """All used milliseconds from the first one in this list on."""
        self._next = self._end = 0
        self.epoch = 0
        self.reopen()

    def reopen(self, above: int = 0) -> None:
        """Use new milliseconds, so that every later number is above `above`, and a new session epoch.

        Raises:
            PubsubError: no number above it is left.
            ConfigurationError: the clock is beyond the largest number.
        """
        self._advance(above)
        self.epoch = self.take()

    def take(self, count: int = 1) -> int:
        """Return the first of `count` consecutive numbers with the same milliseconds; `count` is at most START_MAX."""
        self.ensure(count)
        first = self._next
        self._next += count
        return first

    def ensure(self, count: int) -> None:
        """Make sure that the next `count` numbers, at most START_MAX, need no disk write."""
        if self._next + count > self._end:
            self._advance(0)

    @property
    def highest(self) -> int:
        """The largest number used so far."""
        return self._next - 1

    def never_gave(self, number: int) -> bool:
        """Return True if this number was certainly never used, neither now nor before the present start."""
        milliseconds = number >> COUNT_BITS
        return milliseconds > self.known[0] and milliseconds not in self.known

    def _advance(self, above: int) -> None:
        milliseconds = int((valid_wall(self._wall()) - EPOCH_SECONDS) * 1000)
        behind = self._milliseconds - milliseconds
        if behind > NEAR_MAX:  # A random step, because a copy of this state with a slow clock must get other numbers.
            milliseconds = self._milliseconds + 1 + self._random.randrange(BEHIND_MAX)
        elif behind >= 0:  # A small step, because numbers that an older copy allocates later must be above it.
            milliseconds = self._milliseconds + 1
        milliseconds = max(milliseconds, (above >> COUNT_BITS) + 1)
        if milliseconds << COUNT_BITS > NUMBER_MAX - COUNTS:
            raise PubsubError(f"no number is left above {max(above, self._milliseconds << COUNT_BITS)}")
        self._save(milliseconds)
        self._milliseconds = milliseconds
        self.known = and_then(self.known, milliseconds)
        self._next = (milliseconds << COUNT_BITS) + self._random.randrange(START_MAX)
        self._end = (milliseconds + 1) << COUNT_BITS
