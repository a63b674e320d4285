"""Which deliveries of a webhook may be made now: in order per key, some keys at a time.

A key's messages form a lane, of which only the first may be on its way; where it failed the lane waits, and the other
lanes do not. Messages without a key are one lane, and so strictly in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Delivery:
    """A message that is to be delivered.

    Attributes:
        number: of the message, in its mailbox.
        key: of the message.
        attempts: that failed.
        due: when it may be tried, on the monotonic clock.
        flying: it is on its way.
    """

    number: int
    key: bytes
    attempts: int = 0
    due: float = 0.0
    flying: bool = False


class Lanes:
    """The deliveries of one webhook that are not done.

    Args:
        concurrency: deliveries on their way at the same time.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._lanes: dict[bytes, deque[Delivery]] = {}
        self._count = self.flying = 0

    def __len__(self) -> int:
        return self._count

    def add(self, delivery: Delivery) -> None:
        """One more, behind those of its key."""
        self._lanes.setdefault(delivery.key, deque()).append(delivery)
        self._count += 1

    def ready(self, now: float) -> list[Delivery]:
        """Those to make now; they count as on their way from here on."""
        found: list[Delivery] = []
        for lane in self._lanes.values():
            if self.flying >= self._concurrency:
                break
            first = lane[0]
            if not first.flying and first.due <= now:
                first.flying = True
                self.flying += 1
                found.append(first)
        return found

    def next_due(self) -> float | None:
        """When the next one may be made; None: not by time alone."""
        if self.flying >= self._concurrency:
            return None
        return min((lane[0].due for lane in self._lanes.values() if not lane[0].flying), default=None)

    def done(self, delivery: Delivery) -> None:
        """One was delivered, or given up; its lane goes on."""
        self._landed(delivery)
        lane = self._lanes[delivery.key]
        lane.popleft()
        self._count -= 1
        if lane:  # To the end of the table: every key gets its turn, however many there are.
            self._lanes[delivery.key] = self._lanes.pop(delivery.key)
        else:
            del self._lanes[delivery.key]

    def failed(self, delivery: Delivery, due: float) -> None:
        """One failed and is to be tried again."""
        self._landed(delivery)
        delivery.attempts += 1
        delivery.due = due

    def hurry(self) -> int:
        """What waits for its back-off need not wait; how many that were."""
        waiting = [one for lane in self._lanes.values() for one in lane if one.attempts and not one.flying]
        for one in waiting:
            one.due = 0.0
        return len(waiting)

    def _landed(self, delivery: Delivery) -> None:
        delivery.flying = False
        self.flying -= 1
