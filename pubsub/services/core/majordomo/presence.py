"""Which workers are to be looked at when: for a heartbeat to them, and for one that lacks from them.

A worker is looked at once an interval, at most, together with all others that are due in the same eighth of one. So the
thousandth worker costs a look and not a wake-up, and no table is gone through in search of who is late.
"""

from __future__ import annotations

from math import floor
from typing import Final

from pubsub.services.core.interface import NEVER
from pubsub.services.core.majordomo.records import Worker

SLOTS_AN_INTERVAL: Final = 8


class Presence:
    """The workers of a broker by the time of the next look at them.

    Args:
        interval: seconds between heartbeats.
        liveness: intervals of silence after which a worker counts as dead.

    Attributes:
        due: when `take` is to be called next; NEVER where there is no worker.
        patience: seconds of silence after which a worker counts as dead.
    """

    def __init__(self, interval: float, liveness: int) -> None:
        self.interval, self.patience = interval, interval * liveness
        self._width = interval / SLOTS_AN_INTERVAL
        self._slots: dict[int, dict[bytes, Worker]] = {}
        self._spared_until = float("-inf")
        self.due = NEVER

    def add(self, worker: Worker, now: float) -> None:
        """Look at a worker from now on, though not at once."""
        # Rounded to the earlier slot: a heartbeat may come early, and a silence is noticed at a later look.
        due = min(worker.sent + self.interval, worker.heard + self.patience + self._width)
        slot = worker.slot = max(floor(due / self._width), floor(now / self._width) + 1)
        self._slots.setdefault(slot, {})[worker.peer] = worker
        self.due = min(self.due, slot * self._width)

    def remove(self, worker: Worker) -> None:
        """Look at a worker no more."""
        slot = self._slots[worker.slot]
        del slot[worker.peer]
        if not slot:
            del self._slots[worker.slot]
        if not self._slots:
            self.due = NEVER

    def take(self, now: float) -> list[Worker]:
        """Who is to be looked at now; each is to be added again, or is dead."""
        if now - self.due > self.interval:
            # We were stopped, or very busy: what the workers said meanwhile may not have been read yet.
            self._spared_until = now + self.interval
        workers: list[Worker] = []
        for slot in sorted(self._slots):
            if slot * self._width > now:
                break
            workers += self._slots.pop(slot).values()
        self.due = min(self._slots) * self._width if self._slots else NEVER
        return workers

    def silent(self, worker: Worker, now: float) -> bool:
        """Whether a worker counts as dead."""
        return now - worker.heard >= self.patience and now >= self._spared_until

    def beat_due(self, worker: Worker, now: float) -> bool:
        """Whether a heartbeat is to be sent to a worker that is looked at."""
        return now >= worker.sent + self.interval - self._width
