"""Hands a snapshot of the loop to another thread.

The loop reads `wanted` once a turn, so it costs nothing while no thread asks. A thread that asks wakes the loop. The
loop then makes the snapshot in its own thread and never touches it again.
"""

from __future__ import annotations

from collections.abc import Callable

from pubsub.metrics.snapshot import Snapshot


class Handover:
    """Connects one loop with one asking thread.

    Args:
        wake: ends the loop's sleep; any thread may call it.

    Attributes:
        wanted: the loop should `give` a snapshot.
        started: the loop runs; set by its process.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._take: Callable[[Snapshot], None] = _nobody
        self.wanted = self.started = False

    def ask(self, take: Callable[[Snapshot], None]) -> None:
        """Request a snapshot. An earlier request without an answer is dropped.

        Args:
            take: called with the snapshot in the loop's thread; it must not block.
        """
        self._take = take
        self.wanted = True
        self._wake()

    def give(self, snapshot: Snapshot) -> None:
        """Pass a snapshot on; called in the loop's thread."""
        self.wanted = False
        self._take(snapshot)


def _nobody(snapshot: Snapshot) -> None:
    return None
