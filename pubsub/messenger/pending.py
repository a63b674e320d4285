"""Messages that wait for their answer or acknowledgement, and the times of their retries.

A retry sends the same bytes under the same ID. The delay doubles with each retry up to a limit, and is changed at
random. So peers that lost a connection together do not return at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.peer import Buffer, Chance, Peer, Pending


class PendingMessages:
    """All pending messages of a Messenger, by the time of their next retry.

    Attributes:
        count: their number.
        size: their bytes.
    """

    def __init__(self, limits: MessengerLimits, chance: Chance) -> None:
        self._limits, self._chance = limits, chance
        self._queue: list[tuple[float, int, Pending]] = []
        self._order = 0
        self.count = 0
        self.size = 0

    def add(
        self, peer: Peer, message_id: int, head: bytes, parts: tuple[Buffer, ...], token: int, now: float
    ) -> Pending:
        """Add a message that was just sent."""
        pending = Pending(peer, message_id, head, parts, token, self._limits.retry_seconds)
        peer.pending[message_id] = pending
        self.count += 1
        self.size += pending.size
        self._schedule(pending, now)
        return pending

    def _schedule(self, pending: Pending, now: float) -> None:
        self._order += 1
        heappush(self._queue, (now + pending.next_delay(self._limits, self._chance), self._order, pending))

    def retire(self, pending: Pending) -> None:
        """Remove a message that was answered, acknowledged or given up."""
        if pending.retired:
            return
        pending.retired = True
        self.count -= 1
        self.size -= pending.size
        pending.head, pending.parts = b"", ()  # The entry stays in the queue until it is due; free its bytes now.
        del pending.peer.pending[pending.message_id]

    def due(self, now: float) -> Iterator[Pending]:
        """Yield the messages to send again at `now`, and schedule each again unless it is retired meanwhile."""
        queue = self._queue
        while queue and queue[0][0] <= now:
            pending = heappop(queue)[2]
            if pending.retired:
                continue
            yield pending
            if not pending.retired:
                self._schedule(pending, now)

    def deadline(self) -> float | None:
        """Return when the next retry is due, or None."""
        queue = self._queue
        while queue and queue[0][2].retired:
            heappop(queue)
        return queue[0][0] if queue else None
