"""Where a loop hands a snapshot to another thread, and how that one asks for it.

The loop looks at `wanted` once a turn, which is all that it costs while nobody asks. Who asks wakes it up; it makes the
snapshot in its own thread, where all that is in it is its own, and lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable

from pubsub.metrics.snapshot import Snapshot


class Handover:
    """One loop, and one thread that asks.

    Args:
        wake: ends the loop's sleep; any thread may call it.

    Attributes:
        wanted: whether the loop is to `give` one.
        started: whether there is a loop that turns; set by its process.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._take: Callable[[Snapshot], None] = _nobody
        self.wanted = self.started = False

    def ask(self, take: Callable[[Snapshot], None]) -> None:
        """Have the loop give a snapshot soon; who asked before and got none yet is forgotten.

        Args:
            take: called with it, in the loop's thread; it must not block.
        """
        self._take = take
        self.wanted = True
        self._wake()

    def give(self, snapshot: Snapshot) -> None:
        """Hand it over; in the loop's thread."""
        self.wanted = False
        self._take(snapshot)


def _nobody(snapshot: Snapshot) -> None:
    return None
