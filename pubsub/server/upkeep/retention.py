"""Retention: batches that the policy lets go of, and that no cursor needs, go while the topic is whole.

The rules are those of docs/architecture.md, *Retention*.

A batch may go when the topic's policy lets go of it, no cursor needs any of it, and no other server holds any of the
topic: then the history's low end rises and nothing is missing there. Topics wait in a heap for the time at which their
oldest batch may be due; whether they are whole is asked once for all that are found at the same time. Stamps rise with
offsets, so how far a log may go is found by bisection; the deleting is done in pieces, so that a long history never
holds up the loop.

What could go, were the topic known to be whole, has a limit in bytes of its own. Beyond it the oldest batches lose
their bytes and keep their rows: a later merge then knows what is lost, and for whom.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.server.ownership.sole_owner import SoleOwner, Trimming
from pubsub.server.state.state import State
from pubsub.server.topic.changes import (
    BatchAppended,
    BatchesDiscarded,
    BodiesDropped,
    Change,
    LogTrimmed,
    LogUsedUp,
    WatermarkDropped,
)
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.merge import drop_unused_watermarks
from pubsub.server.topic.topic import Log, Topic

ROUND_SECONDS: Final = 5.0
"""How soon a topic is looked at again whose oldest batch is due but may not go."""

LOOK_SECONDS: Final = 1.0
"""How soon a topic is looked at again of which something went: each look is a question to all proxies."""

PAUSE_SECONDS: Final = 0.1
"""How soon it is tried again where the disk was too full even to delete."""

PIECE_BATCHES_MIN: Final = 500
PIECE_BYTES_MIN: Final = 8 * 1024 * 1024
"""Deleted in one tick, or twice what was appended since the last one: so deleting keeps up with a busy writer."""

TOPICS_MAX: Final = 200
"""Topics looked at in one tick."""


class Retention:
    """When which batches go.

    Args:
        state: the server's.
        sole_owner: says whether this server is a topic's sole owner.
        discarded: numbers of logs that the store holds, and that are nobody's.
        watermarks: numbers of copies of `last` in the store that no span refers to.
        now: monotonic seconds.
    """

    def __init__(
        self, state: State, sole_owner: SoleOwner, discarded: Iterable[int], watermarks: Iterable[int], now: float
    ) -> None:
        self._state, self._sole_owner = state, sole_owner
        self._at = dict.fromkeys(state.topics, now + ROUND_SECONDS)
        """When each topic is to be looked at."""
        self._due = [(at, name) for name, at in self._at.items()]
        """The same as a heap; what `_at` does not say any more is skipped."""
        self._allowed: deque[tuple[str, str, int]] = deque()
        self._over: deque[tuple[str, str, int]] = deque()
        """Topic, log, and the offset below which its batches are to lose their bytes."""
        self._bare: dict[str, int] = {}
        """By log: the offset below which they have."""
        self._discarded = deque(discarded)
        self._discarded_low = 0
        """Up to where the first of them was deleted: what is damaged stays there, and is not to be met again."""
        self._watermarks = deque(watermarks)
        self._generation: dict[str, int] = {}
        self._new_batches = self._new_bytes = 0
        self._paused_until = float("-inf")

    def appended(self, name: str, size: int, now: float) -> None:
        """A topic has a new batch of so many bytes."""
        self._new_batches += 1
        self._new_bytes += size
        if name not in self._at:
            self._push(name, now + self._state.topics[name].policy.keep_seconds)

    def look_at(self, name: str) -> None:
        """A topic came to hold more than it did."""
        self._push(name, float("-inf"))

    def forget(self, name: str) -> None:
        """What was found to be deletable of a topic may be needed now."""
        self._allowed = deque(item for item in self._allowed if item[0] != name)
        self._over = deque(item for item in self._over if item[0] != name)
        self._generation[name] = self._generation.get(name, 0) + 1

    def discard(self, logs: list[int]) -> None:
        """Delete the batches of logs that are nobody's, by their numbers."""
        for log in logs:
            self._discarded.append(log)
            self._state.uncommitted.undo(self._discarded.pop)

    def discard_watermarks(self, numbers: Iterable[int]) -> None:
        """Delete copies of `last` that no span refers to, by their numbers; some may be about to be deleted."""
        self._watermarks.extend(sorted(set(numbers).difference(self._watermarks)))

    def pause(self, now: float, topics: Iterable[str]) -> None:
        """The loop was undone: nothing was deleted, and it is not to be tried again at once.

        Args:
            topics: those that it touched. What kept them from being looked at, such as a freeze, has not come to be.
        """
        self._paused_until = now + PAUSE_SECONDS
        for name in topics:
            self._push(name, now + LOOK_SECONDS)

    def _push(self, name: str, at: float) -> None:
        """Look at a topic at this time, if not earlier."""
        if at < self._at.get(name, float("inf")):
            self._at[name] = at
            heapq.heappush(self._due, (at, name))

    def deadline(self) -> float:
        """When `tick` has something to do."""
        if self._allowed or self._discarded or self._over or self._watermarks:
            return self._paused_until
        return max(self._due[0][0], self._paused_until) if self._due else float("inf")

    def tick(self, now: float) -> list[Change]:
        """Look at the topics that are due, and delete a piece of what may go."""
        if now < self._paused_until:
            return []
        for _ in range(TOPICS_MAX):
            if not self._due or self._due[0][0] > now:
                break
            at, name = heapq.heappop(self._due)
            if self._at.get(name) != at:
                continue
            del self._at[name]
            topic = self._state.topics.get(name)
            if topic is not None and not topic.frozen:
                try:
                    self._examine(topic, now)
                except StoreDamaged:  # It keeps what it holds.
                    self._state.found_damaged(topic)
        out: list[Change] = self._discard() if self._discarded else []
        if self._watermarks:  # One at a time: a watermark may have a row for each publisher.
            out.append(WatermarkDropped(self._next(self._watermarks)))
        if self._allowed:
            out += self._trim(now)
        if self._over:
            out += self._strip()
        self._new_batches = self._new_bytes = 0
        return out

    def _discard(self) -> list[Change]:
        log = self._discarded[0]
        # What this loop stores of it is not in the store yet, and would be left there without its log.
        if any(isinstance(row, BatchAppended) and row.log == log for row in self._state.uncommitted.rows):
            return []
        try:
            rows = self._state.reader.stamps(log, self._discarded_low, PIECE_BATCHES_MIN)
        except StoreDamaged:  # What is left of a damaged log takes space, and hinders nothing else.
            self._next_discarded()
            return []
        low = self._discarded_low
        for offset, count, _, total in rows:
            if total - rows[0][3] > PIECE_BYTES_MIN and low:
                break
            low = offset + count
        last = len(rows) < PIECE_BATCHES_MIN and (not rows or low == rows[-1][0] + rows[-1][1])
        self._state.uncommitted.keep(self, "_discarded_low")
        self._discarded_low = low
        if last:
            self._next_discarded()
        return [BatchesDiscarded(log, low, last)]

    def _next_discarded(self) -> None:
        self._next(self._discarded)
        self._state.uncommitted.keep(self, "_discarded_low")
        self._discarded_low = 0

    def _next(self, queue: deque[int]) -> int:
        number = queue.popleft()
        self._state.uncommitted.undo(lambda: queue.appendleft(number))
        return number

    def _examine(self, topic: Topic, now: float) -> None:
        old = topic.policy.lets_go_until(self._state.stamps.reading(now))
        floors = topic.floors()
        cuts: dict[str, int] = {}
        again: list[float] = []
        for log in topic.logs.values():
            if log.low >= log.end:
                continue
            cut = _cut(self._state.reader, log, floors[log.id], old)
            if cut > log.low:
                cuts[log.id] = cut
                continue
            oldest = self._state.reader.stamps(log.number, log.low, 1)
            held = not oldest or sum(oldest[0][:2]) > floors[log.id]
            again.append(now + (ROUND_SECONDS if held else max(LOOK_SECONDS, (oldest[0][2] - old) / MICROSECONDS)))
        if cuts:
            asked = Trimming(topic.name, self._generation.get(topic.name, 0), cuts)
            if not self._sole_owner.ask(topic.name, asked):
                self._push(topic.name, now + ROUND_SECONDS)
        elif again:
            self._push(topic.name, min(again))

    def decided(self, asked: Trimming, sole_owner: bool, now: float) -> None:
        """It is known whether this server is the sole owner of a topic of which something may go."""
        name = asked.topic
        known = asked.generation == self._generation.get(name, 0)
        if sole_owner and known:
            self._allowed.extend((name, log, cut) for log, cut in asked.cuts.items())
            return
        self._push(name, now + ROUND_SECONDS)
        topic = self._state.topics.get(name)
        if known and topic is not None:
            try:
                self._limit(topic, asked.cuts)
            except StoreDamaged:
                self._state.found_damaged(topic)

    def _limit(self, topic: Topic, cuts: dict[str, int]) -> None:
        """Find what lies beyond the limit of what is consumed and stays."""
        for log_id, cut in cuts.items():
            log = topic.logs.get(log_id)
            if log is None:  # Another question was answered first, and the log is used up.
                continue
            bare = max(log.low, self._bare.get(log_id, 0))
            upto = _beyond(self._state.reader, log, cut, topic.policy.history_bytes)
            if upto > bare:
                self._over.append((topic.name, log_id, upto))

    def _strip(self) -> list[Change]:
        """Take the bytes of a piece."""
        name, log_id, upto = self._over[0]
        topic = self._state.topics.get(name)
        log = topic.logs.get(log_id) if topic else None
        if topic is None or log is None:
            self._over.popleft()
            return []
        low = max(log.low, self._bare.get(log_id, 0))
        upto = min(upto, topic.floors()[log_id])
        if low >= upto:
            self._over.popleft()
            return []
        try:
            high, taken, _ = _piece(self._state.reader, log, upto, PIECE_BATCHES_MIN, PIECE_BYTES_MIN, low)
        except StoreDamaged:
            self._state.found_damaged(topic)
            self._over.popleft()
            return []
        self._state.uncommitted.keep_item(self._bare, log_id)
        self._bare[log_id] = high
        self._state.counters["batches_without_bytes"] += taken
        # Where the newest batch is among them, a start could not tell any more how many bytes the log has had.
        return [BodiesDropped(log.number, low, high), LogTrimmed(log.number, log.low, log.end, log.total)]

    def _trim(self, now: float) -> list[Change]:
        batches = max(PIECE_BATCHES_MIN, 2 * self._new_batches)
        size = max(PIECE_BYTES_MIN, 2 * self._new_bytes)
        out: list[Change] = []
        while self._allowed and batches > 0 and size > 0:
            name, log_id, cut = self._allowed[0]
            topic = self._state.topics.get(name)
            log = topic.logs.get(log_id) if topic else None
            if topic is None or log is None:
                self._allowed.popleft()
                continue
            # Since the floor was found, a merge may have brought a span that holds what no span held then.
            cut = min(cut, topic.floors()[log_id])
            if log.low < cut:
                try:
                    low, taken, freed = _piece(self._state.reader, log, cut, batches, size)
                except StoreDamaged:
                    self._state.found_damaged(topic)
                    self._allowed.popleft()
                    continue
                batches, size = batches - taken, size - freed
                out += self._trimmed(topic, log, low)
            if log.low >= cut:
                self._allowed.popleft()
                self._push(name, now + LOOK_SECONDS)
        return out

    def _trimmed(self, topic: Topic, log: Log, low: int) -> list[Change]:
        out: list[Change] = [LogTrimmed(log.number, low, log.end, log.total)]
        if topic.trim(log, low):
            out.append(LogUsedUp(log.number))
            self._state.uncommitted.keep_item(self._bare, log.id)
            self._bare.pop(log.id, None)
        out += [WatermarkDropped(watermark) for watermark in drop_unused_watermarks(topic)] if topic.watermarks else []
        return out


def _cut(reader: BatchReader, log: Log, floor: int, old: int) -> int:
    """The offset below which every batch of a log is as old as `old` and ends at or below `floor`."""
    cut = low = log.low
    high = min(floor, log.end)
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, log.low, middle)
        if batch is None:  # Nothing is stored there.
            cut = low = middle + 1
            continue
        offset, count, stamp, _ = batch
        if stamp <= old and offset + count <= floor:
            cut = max(cut, offset + count)
            low = max(offset + count, middle + 1)
        else:
            high = offset
    return cut


def _beyond(reader: BatchReader, log: Log, cut: int, history: int) -> int:
    """The offset from which on to `cut` a log has at most so many bytes."""
    rows = reader.stamps(log.number, cut, 1)
    total = rows[0][3] if rows else log.total
    low, high = log.low, cut
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, log.low, middle)
        if batch is None:
            low = middle + 1
        elif total - batch[3] > history:
            low = max(batch[0] + batch[1], middle + 1)
        else:
            high = batch[0]
    return min(low, cut)


def _piece(
    reader: BatchReader, log: Log, cut: int, batches: int, size: int, start: int | None = None
) -> tuple[int, int, int]:
    """How much of what may go below `cut`, from `start` or the log's low end, goes at once.

    Returns:
        The new low end, and how many batches and bytes lie below it.
    """
    low, taken = log.low if start is None else start, 0
    rows = reader.stamps(log.number, low, batches)
    first = rows[0][3] if rows else 0
    for offset, count, _, total in rows:
        if offset + count > cut:
            return cut, taken, total - first
        if taken and total - first > size:
            return low, taken, total - first
        low, taken = offset + count, taken + 1
    return (low if len(rows) == batches else cut), taken, rows[-1][3] - first if rows else 0
