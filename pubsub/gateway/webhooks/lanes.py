"""Which deliveries of a webhook may be made now: in order per key, some keys at a time.

A key's messages form a lane, of which only the first may be on its way; where it failed the lane waits, and the other
lanes do not. Messages without a key are one lane, and so strictly in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pubsub.web.schedule import Schedule


@dataclass(slots=True)
class Delivery:
    """A message that is to be delivered.

    Attributes:
        number: of the message, in its mailbox.
        key: of the message.
        attempts: that failed.
        due: when it may be tried, on the monotonic clock.
    """

    number: int
    key: bytes
    attempts: int = 0
    due: float = 0.0


class Lanes:
    """The deliveries of one webhook that are not done.

    Args:
        concurrency: deliveries on their way at the same time.
    """

    def __init__(self, concurrency: int) -> None:
        self._first: Schedule[bytes] = Schedule(concurrency, concurrency)  # By key, when a lane's first is due.
        self._lanes: dict[bytes, deque[Delivery]] = {}
        self._count = 0
        self._now = 0.0

    def __len__(self) -> int:
        return self._count

    @property
    def flying(self) -> int:
        """How many are on their way."""
        return len(self._first.busy)

    def add(self, delivery: Delivery) -> None:
        """One more, behind those of its key."""
        lane = self._lanes.setdefault(delivery.key, deque())
        lane.append(delivery)
        self._count += 1
        if len(lane) == 1:
            self._first.set(delivery.key, delivery.due)

    def begin(self, now: float) -> tuple[list[Delivery], float | None]:
        """Those to make now, on their way from here on; and in how many seconds to ask again, None: when one ends."""
        self._now = now
        keys, seconds = self._first.turn(now)
        return [self._lanes[key][0] for key in keys], seconds

    def done(self, delivery: Delivery) -> None:
        """One was delivered, or given up; its lane goes on."""
        key = delivery.key
        self._first.end(key)
        lane = self._lanes[key]
        lane.popleft()
        self._count -= 1
        if lane:  # Behind those that are due now: every key gets its turn, however many there are.
            self._first.set(key, max(lane[0].due, self._now))
        else:
            del self._lanes[key]

    def failed(self, delivery: Delivery, due: float) -> None:
        """One failed and is to be tried again."""
        delivery.attempts += 1
        delivery.due = due
        self._first.end(delivery.key)
        self._first.set(delivery.key, due)

    def hurry(self) -> int:
        """What waits for its back-off need not wait; how many that were."""
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
