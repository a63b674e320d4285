"""Selects the deliveries of a webhook that may start now: in order for each key, with some keys at a time.

Messages with the same key form a lane. Only the first of a lane may be in delivery. After a failure its lane waits, but
the other lanes do not. Messages without a key are one lane, and therefore strictly in order.

The rule is docs/explanation/gateway.md, H10.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pubsub.web.schedule import Schedule


@dataclass(slots=True)
class Delivery:
    """A message to deliver.

    Attributes:
        number: of the message, in its mailbox.
        key: of the message.
        attempts: failed ones.
        due: earliest time of the next attempt, on the monotonic clock.
    """

    number: int
    key: bytes
    attempts: int = 0
    due: float = 0.0


class KeyQueues:
    """The unfinished deliveries of one webhook.

    Args:
        concurrency: limit of deliveries at the same time.
    """

    def __init__(self, concurrency: int) -> None:
        self._first: Schedule[bytes] = Schedule(concurrency, concurrency)  # Due time of each lane's first, by key.
        self._lanes: dict[bytes, deque[Delivery]] = {}
        self._count = 0
        self._now = 0.0

    def __len__(self) -> int:
        return self._count

    @property
    def flying(self) -> int:
        return len(self._first.busy)

    def add(self, delivery: Delivery) -> None:
        lane = self._lanes.setdefault(delivery.key, deque())
        lane.append(delivery)
        self._count += 1
        if len(lane) == 1:
            self._first.set(delivery.key, delivery.due)

    def begin(self, now: float) -> tuple[list[Delivery], float | None]:
        """Return the deliveries to start now, and the seconds until the next call, None: when a delivery ends."""
        self._now = now
        keys, seconds = self._first.turn(now)
        return [self._lanes[key][0] for key in keys], seconds

    def done(self, delivery: Delivery) -> None:
        """Remove a finished delivery; its lane continues."""
        key = delivery.key
        self._first.end(key)
        lane = self._lanes[key]
        lane.popleft()
        self._count -= 1
        if lane:  # Queue the lane after those due now, so that every key gets its turn.
            self._first.set(key, max(lane[0].due, self._now))
        else:
            del self._lanes[key]

    def failed(self, delivery: Delivery, due: float) -> None:
        delivery.attempts += 1
        delivery.due = due
        self._first.end(delivery.key)
        self._first.set(delivery.key, due)

    def hurry(self) -> int:
        """Make all deliveries that wait for their back-off due now, and return their number."""
        waiting = [
            one
            for key, lane in self._lanes.items()
            for place, one in enumerate(lane)
            if one.attempts and (place or key not in self._first.busy)
        ]
        for one in waiting:
            one.due = 0.0
            if self._lanes[one.key][0] is one:
                self._first.set(one.key, 0.0)
        return len(waiting)
