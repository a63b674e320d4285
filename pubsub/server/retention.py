"""Retention: what nobody is to receive any more goes, after its hold, while the topic is whole (DESIGN section 5).

A batch may go when no leg holds any of it, it is older than the hold, and no other server holds any of the topic: then
the spine's low end rises and nothing is missing there. Topics wait in a heap for the time at which their oldest batch
may be due; whether they are whole is asked once for all that are found at the same time. The work is done in pieces,
so that deleting a long history never holds up the loop.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pubsub.clock import MICROSECONDS
from pubsub.server.changes import BatchesDiscarded, Change, LogTrimmed, LogUsedUp, SkipDropped
from pubsub.server.join import drop_unused_skips
from pubsub.server.topic import Log, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

ROUND_SECONDS: Final = 5.0
"""How soon a topic is looked at again whose oldest batch is due but may not go."""

SCAN_BATCHES_MAX: Final = 500
"""Batches looked at, and deleted, in one piece."""

PIECE_BYTES_MAX: Final = 8 * 1024 * 1024
TOPICS_MAX: Final = 200
"""Topics looked at in one tick."""


class Retention:
    """When which batches go.

    Args:
        hold: seconds that every batch stays, at least.
        now: monotonic seconds.
        topics: those that the store held at start.
    """

    def __init__(self, hold: float, now: float, topics: Iterable[str]) -> None:
        self._hold = hold
        self._due = [(now + ROUND_SECONDS, name) for name in topics]
        heapq.heapify(self._due)
        self._queued = {name for _, name in self._due}
        self._allowed: deque[tuple[str, str, int]] = deque()
        self._discarded: deque[int] = deque()
        self._generation: dict[str, int] = {}

    def appended(self, name: str, now: float) -> None:
        """A topic has a new batch."""
        if name not in self._queued:
            self._push(name, now + self._hold)

    def look_at(self, name: str) -> None:
        """A topic came to hold more than it did."""
        if name not in self._queued:
            self._push(name, float("-inf"))

    def forget(self, name: str) -> None:
        """What was found to be deletable of a topic may be needed now."""
        self._allowed = deque(item for item in self._allowed if item[0] != name)
        self._generation[name] = self._generation.get(name, 0) + 1

    def discard(self, logs: list[int]) -> None:
        """Delete the batches of logs that are nobody's, by their numbers."""
        self._discarded.extend(logs)

    def _push(self, name: str, at: float) -> None:
        self._queued.add(name)
        heapq.heappush(self._due, (at, name))

    def deadline(self) -> float:
        """When `tick` has something to do."""
        if self._allowed or self._discarded:
            return float("-inf")
        return self._due[0][0] if self._due else float("inf")

    def tick(self, core: ServerCore, now: float) -> list[Change]:
        """Look at the topics that are due, and delete a piece of what may go."""
        for _ in range(TOPICS_MAX):
            if not self._due or self._due[0][0] > now:
                break
            _, name = heapq.heappop(self._due)
            self._queued.discard(name)
            topic = core.topics.get(name)
            if topic is not None and not topic.frozen:
                self._examine(core, topic, now)
        out: list[Change] = self._discard(core) if self._discarded else []
        return out + self._trim(core) if self._allowed else out

    def _discard(self, core: ServerCore) -> list[Change]:
        log = self._discarded[0]
        rows = core.reader.stamps(log, 0, SCAN_BATCHES_MAX)
        low = 0
        for offset, count, _, total in rows:
            if total - rows[0][3] > PIECE_BYTES_MAX and low:
                break
            low = offset + count
        last = len(rows) < SCAN_BATCHES_MAX and (not rows or low == rows[-1][0] + rows[-1][1])
        if last:
            self._discarded.popleft()
        return [BatchesDiscarded(log, low, last)]

    def _examine(self, core: ServerCore, topic: Topic, now: float) -> None:
        old = core.stamps.reading(now) - int(self._hold * MICROSECONDS)
        floors = topic.floors()
        cuts: dict[str, int] = {}
        again: list[float] = []
        for log in topic.logs.values():
            if log.low >= log.end:
                continue
            place = log.low
            rows = core.reader.stamps(log.number, place, SCAN_BATCHES_MAX)
            for offset, count, stamp, _ in rows:
                if offset + count > floors[log.id]:
                    again.append(now + ROUND_SECONDS)
                    break
                if stamp > old:
                    again.append(now + (stamp - old) / MICROSECONDS)
                    break
                place = offset + count
            else:
                again.append(now + ROUND_SECONDS if len(rows) < SCAN_BATCHES_MAX else now)
            if place > log.low:
                cuts[log.id] = place
        if cuts:
            asked = self._generation.get(topic.name, 0)
            if not core.wholeness.ask(topic.name, lambda whole, at: self._answered(topic.name, asked, cuts, whole, at)):
                self._push(topic.name, now + ROUND_SECONDS)
        elif again:
            self._push(topic.name, min(again))

    def _answered(self, name: str, generation: int, cuts: dict[str, int], whole: bool, now: float) -> None:
        if whole and generation == self._generation.get(name, 0):
            self._allowed.extend((name, log, cut) for log, cut in cuts.items())
        elif name not in self._queued:
            self._push(name, now + ROUND_SECONDS)

    def _trim(self, core: ServerCore) -> list[Change]:
        name, log_id, cut = self._allowed.popleft()
        topic = core.topics.get(name)
        log = topic.logs.get(log_id) if topic else None
        if topic is None or log is None or log.low >= cut:
            return []
        low = self._piece(core, log, cut)
        out: list[Change] = [LogTrimmed(log.number, low, log.end, log.total)]
        if topic.trim(log, low):
            out.append(LogUsedUp(log.number))
        out += [SkipDropped(skip) for skip in drop_unused_skips(topic)] if topic.skips else []
        core.marks.topic(name)
        if low < cut:
            self._allowed.append((name, log_id, cut))
        elif name not in self._queued:
            self._push(name, float("-inf"))
        return out

    @staticmethod
    def _piece(core: ServerCore, log: Log, cut: int) -> int:
        rows = core.reader.stamps(log.number, log.low, SCAN_BATCHES_MAX)
        low, first = log.low, rows[0][3] if rows else 0
        for offset, count, _, total in rows:
            if offset + count > cut or (total - first > PIECE_BYTES_MAX and low > log.low):
                return low
            low = offset + count
        return low if rows else cut
