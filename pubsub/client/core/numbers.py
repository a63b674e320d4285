"""The client's one allocator of 63-bit numbers (docs/architecture.md, *Numbers*).

A number is 41 bits of milliseconds since 2020 and 22 bits of a count. The milliseconds are durable before the first
number under them is given out, and the next ones are always above the stored ones, so no number is ever given out
twice, whatever else a crash, a power cut or a clock takes away. The count starts at a random value in its lower half,
so that two copies of one state directory that are opened in the same millisecond still part ways. Nothing else about
numbers needs a disk: two million and more are given out per fsync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pubsub.base.clock import EPOCH_SECONDS, sound_wall
from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import PubsubError

if TYPE_CHECKING:
    from random import Random

COUNT_BITS: Final = 22
COUNTS: Final = 1 << COUNT_BITS
START_MAX: Final = 1 << 21
BEHIND_MAX: Final = 1 << 12
"""How many milliseconds numbers go on by at most, by chance, where the clock is behind them."""

NEAR_MAX: Final = 64
"""Behind by so many milliseconds or fewer it is no wrong clock, but a client that was opened again at once."""

KNOWN_MAX: Final = 64
"""Of so many milliseconds it is remembered that numbers were given out; each opening of a client takes new ones."""


def and_then(known: Sequence[int], milliseconds: int) -> list[int]:
    """The milliseconds that are remembered when these are used, behind those that were known: the last KNOWN_MAX."""
    return [*known, milliseconds][-KNOWN_MAX:]


class Numbers:
    """Gives out numbers that rise and are never given out again.

    Args:
        stored: the milliseconds that are durable from before; 0: none.
        wall: gives seconds since 1970.
        random: where the count's start comes from.
        save: makes new milliseconds durable, fsynced, before it returns.
        earlier: the milliseconds of earlier numbers, all of them from the first one on, up to `stored`.

    Attributes:
        epoch: the session epoch, the first number since the client was opened (`opening` on the wire): of two clients
            that are open with one name, the later one goes on.

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
        """All milliseconds that were used, from the first one here on."""
        self._next = self._end = 0
        self.epoch = 0
        self.reopen()

    def reopen(self, above: int = 0) -> None:
        """Take new milliseconds, so that every number to come is above `above`, and with them a new session epoch.

        Raises:
            PubsubError: no number is above it; ConfigurationError: the clock is beyond all numbers.
        """
        self._advance(above)
        self.epoch = self.take()

    def take(self, count: int = 1) -> int:
        """The first of `count` numbers in a row that never cross into other milliseconds; at most START_MAX."""
        self.ensure(count)
        first = self._next
        self._next += count
        return first

    def ensure(self, count: int) -> None:
        """See that the next `count` numbers, at most START_MAX, need no disk."""
        if self._next + count > self._end:
            self._advance(0)

    @property
    def highest(self) -> int:
        """The largest number that was ever given out."""
        return self._next - 1

    def never_gave(self, number: int) -> bool:
        """Whether it is certain that this number was given out neither now nor by an earlier life of the client."""
        milliseconds = number >> COUNT_BITS
        return milliseconds > self.known[0] and milliseconds not in self.known

    def _advance(self, above: int) -> None:
        milliseconds = int((sound_wall(self._wall()) - EPOCH_SECONDS) * 1000)
        behind = self._milliseconds - milliseconds
        if behind > NEAR_MAX:  # A copy of this state whose clock is behind too is to take others.
            milliseconds = self._milliseconds + 1 + self._random.randrange(BEHIND_MAX)
        elif behind >= 0:  # Not far above the clock: what an older copy is given later has to be above it.
            milliseconds = self._milliseconds + 1
        milliseconds = max(milliseconds, (above >> COUNT_BITS) + 1)
        if milliseconds << COUNT_BITS > NUMBER_MAX - COUNTS:
            raise PubsubError(f"no number is left above {max(above, self._milliseconds << COUNT_BITS)}")
        self._save(milliseconds)
        self._milliseconds = milliseconds
        self.known = and_then(self.known, milliseconds)
        self._next = (milliseconds << COUNT_BITS) + self._random.randrange(START_MAX)
        self._end = (milliseconds + 1) << COUNT_BITS
