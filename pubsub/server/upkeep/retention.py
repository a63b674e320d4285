"""Retention: deletes batches that the policy releases and no cursor needs, while the server is the topic's sole owner.

The rules are those of docs/explanation/retention.md, T2, T4, T5 and T6.

A batch may be deleted if the topic's policy releases it, no cursor needs any of it, and no other server holds any of
the topic. The low end of the history then rises, and nothing is missing there. Topics wait in a heap for the time at
which their oldest batch may be due. One question about sole ownership covers all batches found at the same time.
Bisection finds the limit of deletion in a log. Batches are deleted in pieces, so a long history never delays the loop.

Batches that could be deleted if the server were known to be the sole owner have a separate limit in bytes. Beyond it
the oldest batches lose their bytes and keep their rows. A later merge then knows which messages are lost, and to which
subscribers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from pubsub.base.clock import MICROSECONDS
from pubsub.base.due_times import DueTimes
from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import StoreDamaged
from pubsub.protocol.topic_settings import CLOCK_AHEAD, NONE, NOT_SOLE_OWNER, OTHER_DEFAULTS
from pubsub.server.ownership.patterns import ServerPatterns
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
from pubsub.server.topic.delivery import BatchReader, first_with_body
from pubsub.server.topic.merge import drop_unused_watermarks
from pubsub.server.topic.places import cut
from pubsub.server.topic.purged import kept_places, unread_place
from pubsub.server.topic.settings import BUILT_IN, Settings
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep.compaction import Compaction
from pubsub.server.upkeep.expiry import expired_below
from pubsub.server.upkeep.keeping import beyond, held_by, released, stored_below

ROUND_SECONDS: Final = 5.0
"""Interval before another look at a topic with an oldest batch that is due but must stay."""

LOOK_SECONDS: Final = 1.0
"""Interval before another look at a topic after a deletion. Each look is a question to all proxies."""

PAUSE_SECONDS: Final = 0.1
"""Interval before another try if the disk was too full even to delete."""

PIECE_BATCHES_MIN: Final = 500
PIECE_BYTES_MIN: Final = 8 * 1024 * 1024
"""Size of a deletion in one tick, or twice the size appended since the last tick: deletion keeps up with a busy writer.
"""

TOPICS_MAX: Final = 200
"""Maximum number of topics checked in one tick."""


class Retention:
    """Decides when batches are deleted.

    Args:
        state: of the server.
        sole_owner: answers whether this server is a topic's sole owner.
        patterns: makes the entries of subscribers to patterns.
        discarded: numbers of stored logs without a topic.
        watermarks: numbers of stored copies of `last` to which no span refers.
        now: monotonic seconds.
        trusts_ages: returns whether the clock is right enough for ages, at this monotonic time.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        patterns: ServerPatterns,
        discarded: Iterable[int],
        watermarks: Iterable[int],
        now: float,
        trusts_ages: Callable[[float], bool] = lambda now: True,
    ) -> None:
        self._state, self._sole_owner, self._patterns = state, sole_owner, patterns
        self.compaction = Compaction(state, sole_owner, patterns, self._trimmed, now, trusts_ages)
        self._trusts_ages = trusts_ages
        self._due = DueTimes(dict.fromkeys(state.topics, now + ROUND_SECONDS))
        """When each topic is due for a check."""
        self._allowed: deque[tuple[str, str, int]] = deque()
        self._over: deque[tuple[str, str, int, bool]] = deque()
        """Topic, log, the offset below which its batches are to lose their bytes, and True if subscribers lose them."""
        self._discarded = deque(discarded)
        self._discarded_low = 0
        """End of the deletion in the first of these logs. Damaged batches below it stay, and must not be met again."""
        self._watermarks = deque(watermarks)
        self._generation: dict[str, int] = {}
        self._new_batches = self._new_bytes = 0
        self._paused_until = float("-inf")

    def appended(self, name: str, size: int, now: float) -> None:
        """Record that a topic has a new batch of `size` bytes."""
        self._new_batches += 1
        self._new_bytes += size
        topic = self._state.topics[name]
        if name not in self._due:
            self._due.hasten(name, now + topic.policy.keep_seconds)
        elif topic.in_force is not BUILT_IN and topic.in_force.counts:
            self._due.hasten(name, now + ROUND_SECONDS)
        if topic.in_force is not BUILT_IN and topic.settings.compacts:
            self.compaction.appended(topic, now)

    def look_at(self, name: str) -> None:
        """Make a topic due at once, because it now holds more than before."""
        self._due.hasten(name, float("-inf"))
        self.compaction.look_at(name)

    def forget(self, name: str) -> None:
        """Drop the findings about a topic, because its deletable batches may be needed now."""
        self._allowed = deque(item for item in self._allowed if item[0] != name)
        self._over = deque(item for item in self._over if item[0] != name)
        self._generation[name] = self._generation.get(name, 0) + 1
        self.compaction.forget(name)

    def discard(self, logs: list[int]) -> None:
        """Delete the batches of logs without a topic, by the logs' numbers."""
        for log in logs:
            self._discarded.append(log)
            self._state.uncommitted.undo(self._discarded.pop)

    def discard_watermarks(self, numbers: Iterable[int]) -> None:
        """Delete copies of `last` to which no span refers, by their numbers. Some may be queued already."""
        self._watermarks.extend(sorted(set(numbers).difference(self._watermarks)))

    def pause(self, now: float, topics: Iterable[str]) -> None:
        """Wait before the next try, because the loop was undone and nothing was deleted.

        Args:
            now: monotonic seconds.
            topics: those that the loop touched. A change that stopped their checks, such as a freeze, is undone too.
        """
        self._paused_until = now + PAUSE_SECONDS
        self.compaction.pause(now + PAUSE_SECONDS)
        for name in topics:
            self.forget(name)  # The findings may count batches of that loop.
            self._due.hasten(name, now + LOOK_SECONDS)

    def deadline(self) -> float:
        """Return the time at which `tick` has work."""
        if self._allowed or self._discarded or self._over or self._watermarks:
            return self._paused_until
        return max(min(self._due.deadline(), self.compaction.deadline()), self._paused_until)

    def tick(self, now: float) -> list[Change]:
        """Check the topics that are due, and delete a piece of the deletable batches."""
        if now < self._paused_until:
            return []
        for name in self._due.take(now, TOPICS_MAX):
            topic = self._state.topics.get(name)
            if topic is not None and not topic.frozen:
                try:
                    self._examine(topic, now)
                except StoreDamaged:  # The topic keeps its batches.
                    self._state.found_damaged(topic)
        out: list[Change] = self._discard() if self._discarded else []
        if self._watermarks:  # One in each tick, because a watermark may have a row for each publisher.
            out.append(WatermarkDropped(self._next(self._watermarks)))
        if self._allowed:
            out += self._trim(now)
        if self._over:
            out += self._strip()
        self._new_batches = self._new_bytes = 0
        return out + self.compaction.tick(now)

    def _discard(self) -> list[Change]:
        log = self._discarded[0]
        # Batches that this loop appends to the log are not in the store yet, and would remain there without their log.
        if any(isinstance(row, BatchAppended) and row.log == log for row in self._state.uncommitted.rows):
            return []
        try:
            rows = self._state.reader.stamps(log, self._discarded_low, PIECE_BATCHES_MIN)
        except StoreDamaged:  # The rest of a damaged log takes space and does no other harm.
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
        self._patterns.settle(topic)
        stamp, settings = self._state.stamps.reading(now), topic.in_force
        wrong = settings is not BUILT_IN and not self._trusts_ages(now) and settings != settings.without_ages
        if settings.expire_age is not None:
            self._expire(topic, stamp - settings.expire_age if self._trusts_ages(now) else 0)
        if wrong:  # The age of each message may be too large (docs/explanation/defaults.md, Y2).
            settings = settings.without_ages
        old = topic.policy.lets_go_until(stamp)
        if settings.dropped or topic.purged:
            self._know_bare(topic)
        floors, stored = topic.floors(), stored_below(topic, self._state.uncommitted.rows)
        kept = None if settings.keep == (NONE,) else released(topic, settings.keep, stamp, self._state.reader)
        if kept is not None and topic.purged:
            kept = kept_places(topic, kept)
        limits = stored if kept is None else {log: min(kept[log], end) for log, end in stored.items()}
        cuts: dict[str, int] = {}
        again: list[float] = []
        for log in topic.logs.values():
            if log.low >= log.end:
                continue
            place = cut(self._state.reader, log, min(floors[log.id], limits[log.id]), old)
            if place > log.low:
                cuts[log.id] = place
                continue
            oldest = self._state.reader.stamps(log.number, log.low, 1)
            if not oldest or sum(oldest[0][:2]) > floors[log.id]:
                again.append(now + ROUND_SECONDS)
            else:
                kept_until = (
                    0 if kept is None or sum(oldest[0][:2]) <= kept[log.id] else settings.kept_until(oldest[0][2])
                )
                due = max(oldest[0][2] - old, kept_until - stamp) / MICROSECONDS
                again.append(now + max(LOOK_SECONDS, due))
        drops = self._drops(topic, settings, limits, stamp, old) if settings.drops or topic.purged else {}
        if cuts or drops:
            by_default = topic.settings.by_default
            generation = self._generation.get(topic.name, 0)
            asked = Trimming(topic.name, generation, cuts, drops, by_default=by_default)
            if not self._sole_owner.ask(topic.name, asked):
                self._due.hasten(topic.name, now + ROUND_SECONDS)
            return
        if not topic.settings.compacts:  # Compaction finds what holds it up.
            topic.superseded_since = 0
            topic.not_let_go = "" if settings is BUILT_IN else held_by(topic, floors, limits)
        if wrong:
            topic.not_let_go = topic.not_let_go or CLOCK_AHEAD
            again.append(now + ROUND_SECONDS)
        if again and min(again) < float("inf"):
            self._due.hasten(topic.name, min(again))

    def _know_bare(self, topic: Topic) -> None:
        """Find the dropped batches of a topic that this process has not seen, which take no room in the backlog."""
        unknown = [log for log in topic.logs.values() if not log.bare]
        for log in unknown:
            log.bare = first_with_body(self._state.reader, log)
        if unknown:
            self._state.measure(topic)

    def _expire(self, topic: Topic, oldest: int) -> None:
        """Let the batches that are too old for delivery take no room in the backlog."""
        for log in topic.logs.values():
            log.expired = expired_below(log, oldest, self._state.reader)
        self._state.measure(topic)

    def _drops(self, topic: Topic, settings: Settings, limits: dict[str, int], stamp: int, old: int) -> dict[str, int]:
        """Return for each log with unacknowledged batches to drop the offset below which they go."""
        reader, out = self._state.reader, {}
        dropped = released(topic, settings.drop, stamp, reader)
        for log in topic.logs.values():
            goes = max(dropped[log.id], unread_place(topic, log.id))
            place = cut(reader, log, min(goes, limits[log.id]), old)
            if place > max(log.low, log.bare):
                out[log.id] = place
        return out

    def decided(self, asked: Trimming, sole_owner: bool, now: float) -> None:
        """Process the answer to whether this server is the sole owner of a topic with deletable batches."""
        name = asked.topic
        known = asked.generation == self._generation.get(name, 0)
        topic = self._state.topics.get(name)
        others = asked.others_with_other_defaults if asked.by_default else ""
        reason = f"{OTHER_DEFAULTS} {others}" if others else "" if sole_owner else NOT_SOLE_OWNER
        if known and topic is not None and not topic.not_let_go.startswith("subscriber "):
            topic.not_let_go = "" if topic.in_force is BUILT_IN and not others else reason
        if known and topic and not self._patterns.prepare(topic, asked.denied, asked.informed, sole_owner):
            self._due.hasten(name, now + ROUND_SECONDS)
            return
        if known and others:
            self._state.counters["held_by_other_defaults"] += 1
            self._due.hasten(name, now + ROUND_SECONDS)
            return
        if sole_owner and known:
            self._allowed.extend((name, log, place) for log, place in asked.cuts.items())
            self._over.extend((name, log, upto, True) for log, upto in asked.drops.items())
            if asked.drops:
                self._due.hasten(name, now + ROUND_SECONDS)
            return
        self._due.hasten(name, now + ROUND_SECONDS)
        if known and topic is not None:
            try:
                self._limit(topic, asked.cuts)
            except StoreDamaged:
                self._state.found_damaged(topic)

    def _limit(self, topic: Topic, cuts: dict[str, int]) -> None:
        """Find the batches beyond the limit for consumed batches that must stay."""
        for log_id, place in cuts.items():
            log = topic.logs.get(log_id)
            if log is None:  # An earlier answer has led to the deletion of the log.
                continue
            upto = beyond(self._state.reader, log, place, topic.policy.history_bytes)
            if upto > max(log.low, log.bare):
                self._over.append((topic.name, log_id, upto, False))

    def _strip(self) -> list[Change]:
        """Drop the bodies of a piece."""
        name, log_id, upto, drops = self._over[0]
        topic = self._state.topics.get(name)
        log = topic.logs.get(log_id) if topic else None
        if topic is None or log is None:
            self._over.popleft()
            return []
        low, floor = max(log.low, log.bare), topic.floors()[log_id]
        if drops and not topic.settings.dropped:  # By a default. The reason of the loss is kept with the topic.
            topic.configure(replace(topic.settings, dropped=True))
        try:
            upto = upto if drops else self._unneeded(topic, log, upto)
            if low >= upto:
                self._over.popleft()
                return []
            high, taken, _ = _piece(self._state.reader, log, upto, PIECE_BATCHES_MIN, PIECE_BYTES_MIN, low)
        except StoreDamaged:
            self._state.found_damaged(topic)
            self._over.popleft()
            return []
        self._state.uncommitted.keep(log, "bare")
        log.bare = high
        self._state.counters["batches_without_bytes"] += taken
        if high > floor:
            self._state.counters["batches_dropped"] += taken
            self._state.measure(topic)
        # If the newest batch loses its body, a restart could not compute the total bytes of the log from it.
        return [BodiesDropped(log.number, low, high), LogTrimmed(log.number, log.low, log.end, log.total)]

    def _trim(self, now: float) -> list[Change]:
        batches, size = max(PIECE_BATCHES_MIN, 2 * self._new_batches), max(PIECE_BYTES_MIN, 2 * self._new_bytes)
        out: list[Change] = []
        while self._allowed and batches > 0 and size > 0:
            name, log_id, allowed = self._allowed[0]
            topic = self._state.topics.get(name)
            log = topic.logs.get(log_id) if topic else None
            if topic is None or log is None:
                self._allowed.popleft()
                continue
            try:
                place = self._unneeded(topic, log, allowed)
                if log.low < place:
                    low, taken, freed = _piece(self._state.reader, log, place, batches, size)
                    batches, size = batches - taken, size - freed
                    out += self._trimmed(topic, log, low)
                    self.compaction.trimmed(topic, log_id, now)
            except StoreDamaged:
                self._state.found_damaged(topic)
                self._allowed.popleft()
                continue
            if log.low >= place:
                self._allowed.popleft()
                self._due.hasten(name, now + LOOK_SECONDS)
        return out

    def _unneeded(self, topic: Topic, log: Log, place: int) -> int:
        """Return the offset up to `place` below which no subscriber needs a record of any batch.

        Since the decision a merge or a new subscription may need batches, from a record in the middle of one on.
        """
        floor = topic.floors()[log.id]
        return place if place <= floor else cut(self._state.reader, log, floor, NUMBER_MAX)

    def _trimmed(self, topic: Topic, log: Log, low: int) -> list[Change]:
        out: list[Change] = [LogTrimmed(log.number, low, log.end, log.total)]
        if topic.trim(log, low):
            out.append(LogUsedUp(log.number))
        if log.id in topic.purged and (log.id not in topic.logs or low >= topic.purged[log.id].kept):
            topic.forget_purge(log.id)
        out += [WatermarkDropped(watermark) for watermark in drop_unused_watermarks(topic)] if topic.watermarks else []
        return out


def _piece(
    reader: BatchReader, log: Log, cut: int, batches: int, size: int, start: int | None = None
) -> tuple[int, int, int]:
    """Compute how much of a log below `cut`, from `start` or the log's low end, is deleted at once.

    Returns:
        The new low end, and the number of batches and bytes below it.
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
