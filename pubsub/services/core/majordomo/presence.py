"""Schedule of a broker's checks of its workers: heartbeats to send, and workers that are silent.

A worker is checked at most once per interval, together with all workers that are due in the same eighth of an interval.
So the thousandth worker costs a check but no wakeup, and no search goes through all workers.
"""

from __future__ import annotations

from math import floor
from typing import Final

from pubsub.services.core.interface import NEVER
from pubsub.services.core.majordomo.records import Worker

SLOTS_AN_INTERVAL: Final = 8


class Presence:
    """The workers of a broker by the time of their next check.

    Args:
        interval: seconds between heartbeats.
        liveness: silent intervals after which a worker counts as dead.

    Attributes:
        due: time of the next `take`; NEVER without workers.
        patience: seconds of silence after which a worker counts as dead.
    """

    def __init__(self, interval: float, liveness: int) -> None:
        self.interval, self.patience = interval, interval * liveness
        self._width = interval / SLOTS_AN_INTERVAL
        self._slots: dict[int, dict[bytes, Worker]] = {}
        self._spared_until = float("-inf")
        self.due = NEVER

    def add(self, worker: Worker, now: float) -> None:
        """Schedule the next check of a worker, not earlier than the next slot."""
        # The earlier slot, since heartbeats may be early; a later check notices silence.
        due = min(worker.sent + self.interval, worker.received_at + self.patience + self._width)
        slot = worker.slot = max(floor(due / self._width), floor(now / self._width) + 1)
        self._slots.setdefault(slot, {})[worker.peer] = worker
        self.due = min(self.due, slot * self._width)

    def remove(self, worker: Worker) -> None:
        slot = self._slots[worker.slot]
        del slot[worker.peer]
        if not slot:
            del self._slots[worker.slot]
        if not self._slots:
            self.due = NEVER

    def take(self, now: float) -> list[Worker]:
        """Return the workers to check now. The caller adds each again, or removes it as dead."""
        if now - self.due > self.interval:
            # This process was paused or very busy: messages of the workers may still be unread.
            self._spared_until = now + self.interval
        workers: list[Worker] = []
        for slot in sorted(self._slots):
            if slot * self._width > now:
                break
            workers += self._slots.pop(slot).values()
        self.due = min(self._slots) * self._width if self._slots else NEVER
        return workers

    def silent(self, worker: Worker, now: float) -> bool:
        return now - worker.received_at >= self.patience and now >= self._spared_until

    def beat_due(self, worker: Worker, now: float) -> bool:
        """Whether a worker that is checked now needs a heartbeat."""
        return now >= worker.sent + self.interval - self._width
