"""One pass of compaction along the history of a topic, stretch by stretch, from the newest record back to the oldest.

The rules are those of docs/explanation/compaction.md, KL3, KL4, KL6, KL7, KL8 and KL10.

A key is remembered as a hash of 16 bytes. With eight bytes, two of some million keys could have one hash, and the older
record of one of them would go as superseded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Final
from zlib import crc32

from pubsub.base.intervals import IntervalSet
from pubsub.protocol.batch import (
    Buffer,
    batch_ends,
    decode_batch,
    decode_blocks,
    decode_keys,
    encode_batch,
    origin_of,
    with_origin,
)
from pubsub.protocol.names import Position
from pubsub.protocol.time_to_live import ends_at
from pubsub.server.state.state import State
from pubsub.server.topic import compacted
from pubsub.server.topic.changes import BatchKept, BatchQuarantined, Change
from pubsub.server.topic.delivery import Batch, is_sound
from pubsub.server.topic.removal import ROUNDS_MAX, Removal, Round
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep.keeping import needed

STRETCH_RECORDS: Final = 10_000
STRETCH_BYTES: Final = 8 * 1024 * 1024
STRETCH_SECONDS: Final = 0.01
"""Limits of one round: it ends with the first batch that exceeds one of them. A batch is looked at as a whole, so a
round may take longer by one batch."""

GROUP_BATCHES: Final = 64
GROUP_BYTES: Final = 256 * 1024
"""Batches that a round reads at once; it ends with the first batch beyond these bytes."""

COMPACT_KEYS_MAX: Final = 1 << 20
"""Keys that a pass remembers, of about 100 bytes each."""


class Pass:
    """One pass.

    Attributes:
        finished: True if the whole history has been looked at.
        left: True if records were left that may go later: young ones, and those that a subscriber needs.
        removed: number of records that went.
        ends: the time of this server at which the first time to live of a last record ends (microseconds since 1970);
            infinity for none.
        held_by: a subscriber that needs a superseded record; "" for none.
        held_since: timestamp of the oldest record that is superseded and needed (microseconds since 1970); 0 for none.
    """

    def __init__(self, state: State, topic: Topic) -> None:
        self.topic = topic
        self.finished = self.left = False
        self.removed = self.held_since = 0
        self.ends = float("inf")
        self.held_by = ""
        self._state = state
        self._spans = [span for span in reversed(topic.history) if span.log in topic.logs]
        self._begin_part(0, None)

    def _begin_part(self, index: int, high: int | None) -> None:
        """Go on at the offset `high` of a span, or at its end, and remember keys from there on."""
        self._index, self._high = index, high
        self._keys: set[bytes] = set()
        self._tombstones: dict[bytes, Position] = {}
        """Tombstones that are old enough, the newest first, as long as nothing of their keys is left before them; and
        last records with a time to live that has ended."""
        self._going: list[Position] | None = None
        self._rest: tuple[int, int] | None = None
        """Where the set of keys was full."""

    def round(self, now: float, clock: Callable[[], float], *, ages: bool = True) -> list[Change]:
        """Look at one stretch, and remove what is superseded.

        Args:
            now: monotonic seconds.
            clock: returns monotonic seconds, to end a round in time.
            ages: False if timestamps may be ahead, so that no tombstone is known to be old enough.

        Raises:
            StoreDamaged: a page cannot be read.
        """
        stamp = self._state.stamps.reading(now)
        self._old = stamp - self.topic.settings.tombstones if ages else 0
        if self._going is None and self._index < len(self._spans):
            span = self._spans[self._index]
            return self._walk(span, self.topic.logs[span.log], stamp, clock() + STRETCH_SECONDS, clock)
        if self._going is None:
            self._going = list(self._tombstones.values())
        if self._going:
            return self._remove_tombstones(self._going, clock() + STRETCH_SECONDS, clock)
        if self._rest is None:
            self.finished = True
        else:
            self._begin_part(*self._rest)
        return []

    # A stretch

    def _walk(self, span: Span, log: Log, stamp: int, until: float, clock: Callable[[], float]) -> list[Change]:
        stored, low = log.end - log.unknown, max(span.low, log.low)
        stop = stored if span.high is None else min(span.high, stored)
        if log.unknown and (span.high is None or span.high > stored):
            self._tombstones.clear()  # Another server may still bring the missing records, which are older.
        high = top = stop if self._high is None else self._high
        thinning = Thinning(self._state, self.topic, log)
        for batch in self._batches(log, low, high):
            high = max(low, batch.offset)
            thinning.see(batch)
            if self._is_readable(log, batch):
                self._look(span, log, batch, stamp, thinning, top)
            if clock() > until:
                break
        else:
            high = min(high, self._bottom)
        self.removed += thinning.removed
        self._high = high
        if high <= low:
            self._index, self._high = self._index + 1, None
        return thinning.finish()

    def _batches(self, log: Log, low: int, high: int) -> Iterator[Batch]:
        """Yield the batches of the next stretch below `high`, the newest first. `_bottom` is the offset it reaches.

        They are read in groups, because the clock may end the round, and past the cache, which readers need.
        """
        reader, records, size = self._state.reader, 0, 0
        self._bottom = high
        while self._bottom > low:
            group, group_bytes, bottom, full = list[int](), 0, low, False
            rows = reader.backwards(log.number, log.low, self._bottom, GROUP_BATCHES)
            for offset, count, length in rows:
                if offset + count <= low:
                    break
                full = records > 0 and (records + count > STRETCH_RECORDS or size + length > STRETCH_BYTES)
                if full or group_bytes > GROUP_BYTES:
                    bottom = offset + count
                    break
                records, size, group_bytes = records + count, size + length, group_bytes + length
                group.append(offset)
            else:
                bottom = low if len(rows) < GROUP_BATCHES else rows[-1][0]
            if group:
                yield from [*reader.batches(log.number, group[-1], self._bottom, cached=False)][::-1]
            self._bottom = bottom
            if full:
                return

    def _is_readable(self, log: Log, batch: Batch) -> bool:
        """Return True if the keys of a batch can be read; what is found damaged is recorded."""
        state = self._state
        if batch.body is not None and is_sound(batch, batch.body, state.publishers.names):
            return True
        if batch.body is not None:
            state.uncommitted.rows.append(BatchQuarantined(log.number, batch.offset))
            state.counters["batches_damaged"] += 1
            state.ask_repair(log.number, batch.offset)
        if batch.body is not None or batch.damaged:
            self._tombstones.clear()  # A repair may bring an older record of any key.
        return False

    def _look(self, span: Span, log: Log, batch: Batch, stamp: int, thinning: Thinning, top: int) -> None:
        """Decide about each record of a batch below the offset `top`, the newest first."""
        topic = self.topic
        assert batch.body is not None
        keys = decode_keys(batch.body)
        if not keys or batch.stamp <= span.since:
            return
        low = max(first_shown(topic, span, batch), span.low - batch.offset)
        high = min(batch.count, top - batch.offset)
        young = batch.stamp > topic.policy.lets_go_until(stamp)
        # The end of a log that grows, or lacks its end, is known by its last batch.
        last = (log is topic.open or log.unknown > 0) and batch.offset + batch.count >= log.end - log.unknown
        gone, blocks = [], decode_blocks(batch.body)
        for index in range(high - 1, low - 1, -1):
            if not keys[index]:
                continue
            key = blake2b(keys[index], digest_size=16).digest()
            if key in self._keys:
                holder = thinning.holder(batch.offset + index)
                if not (young or last or holder):
                    gone.append(index)
                    continue
                self._leave(key, batch.stamp, holder, last)
            elif self._rest is None:
                self._keys.add(key)
                block = blocks[index] if blocks else b""
                ends = 0 if is_tombstone(batch.body, index) else ends_at(block, batch.stamp)
                if ends > stamp:
                    self.ends = min(self.ends, ends)
                elif young or batch.stamp > self._old or thinning.holder(batch.offset + index):
                    self.left = True
                elif not last:
                    self._tombstones[key] = log.id, batch.offset + index
                if len(self._keys) >= COMPACT_KEYS_MAX:
                    self._rest = self._index, batch.offset + index
        thinning.remove(batch, gone)

    def _leave(self, key: bytes, stamp: int, holder: str, last: bool) -> None:
        """Note a superseded record that stays, so that a tombstone of its key stays too."""
        self._tombstones.pop(key, None)
        self.left = self.left or not last
        if holder and (not self.held_since or stamp < self.held_since):
            self.held_by, self.held_since = holder, stamp

    # Tombstones

    def _remove_tombstones(self, going: list[Position], until: float, clock: Callable[[], float]) -> list[Change]:
        """Remove the next tombstones of one log, and note the place of the last of them."""
        topic, removal = self.topic, self.topic.removal
        log = topic.logs[going[0][0]]
        thinning = Thinning(self._state, topic, log)
        last: Position | None = None
        taken = size = 0
        for offset, some in groupby(going[:STRETCH_RECORDS], key=lambda place: self._row(log, place)):
            places = list(some)
            if offset is None or (taken and (size > STRETCH_BYTES or clock() > until)):
                break
            taken += len(places)
            for batch in self._state.reader.batches(log.number, offset, offset + 1, cached=False):
                size += len(batch.body or b"")
                if not self._is_readable(log, batch):
                    continue
                stop = batch.offset + batch.count
                free = [place[1] for place in places if place[1] < stop and not thinning.holder(place[1])]
                last = last or ((log.id, free[0]) if free else None)
                thinning.remove(batch, [place - batch.offset for place in free])
        del going[: max(1, taken)]
        changes = thinning.finish()
        if last is not None:
            self.removed += thinning.removed
            number = removal.tombstones + thinning.removed
            rounds = (*removal.rounds, Round(number, *last))[-ROUNDS_MAX:]
            topic.remove(Removal(True, number, rounds))
            self._state.counters["tombstones_removed"] += thinning.removed
        return changes

    def _row(self, log: Log, place: Position) -> int | None:
        """Return the first offset of the batch at a place; None if it is in another log."""
        if place[0] != log.id:
            return None
        newest = self._state.reader.newest(log.number, log.low, place[1])
        return None if newest is None else newest[0]


def first_shown(topic: Topic, span: Span, batch: Batch) -> int:
    """Return the index of the first record of a batch that the history shows; the batch's count if it shows none."""
    hidden = topic.watermarks.get(span.watermark, {}).get(batch.publisher, 0) - batch.counter
    return min(batch.count, max(0, hidden + 1))


def is_tombstone(body: Buffer, index: int) -> bool:
    """Return True if the record of a batch with this index, which has a key, is empty."""
    ends = batch_ends(body)
    return ends[index] == (ends[index - 1] if index else 0)


class Thinning:
    """The removals of one round in one log.

    Attributes:
        removed: number of records that go.
    """

    def __init__(self, state: State, topic: Topic, log: Log) -> None:
        self._state, self._topic, self._log = state, topic, log
        self._parts = topic.compacted.get(log.id, ())
        self._gone: list[int] = []
        self._kept: list[Change] = []
        self._needed = sorted(_needed(topic, log))
        self._seen = IntervalSet()
        self.removed = 0

    def see(self, batch: Batch) -> None:
        """Note that a batch has its row."""
        self._seen.add(batch.offset, batch.offset + batch.count)

    def _is_complete(self, low: int, high: int) -> bool:
        """Return True if no row is missing in [low, high)."""
        if self._seen.covers(low, high):
            return True
        reader, number = self._state.reader, self._log.number
        newest = reader.newest(number, self._log.low, low)
        place = low if newest is None else max(low, newest[0] + newest[1])
        for offset, count, _, _ in reader.stamps(number, low + 1, high - low) if place > low else ():
            if offset != place or place >= high:
                break
            place += count
        return place >= high

    def holder(self, offset: int) -> str:
        """Return the name of a subscriber that is still to receive a record; "" if there is none."""
        for low, high, name in self._needed[: bisect_right(self._needed, offset, key=itemgetter(0))]:
            if low <= offset < high:
                return name
        return ""

    def remove(self, batch: Batch, gone: Iterable[int]) -> None:
        """Remove the records of a batch with these indexes."""
        indexes = sorted(gone)
        if not indexes:
            return
        assert batch.body is not None
        bodies, keys, blocks = (decode(batch.body) for decode in (decode_batch, decode_keys, decode_blocks))
        total, left, origin = batch.total, set(range(batch.count)).difference(indexes), origin_of(batch.body)
        for low, high in _runs(sorted(left)):
            body = encode_batch(bodies[low:high], keys[low:high], blocks[low:high])
            if origin is not None:
                body = with_origin(body, origin[0], origin[1] + low)
            place, counter = batch.offset + low, batch.counter + low
            facts = (high - low, batch.publisher, counter, batch.stamp, crc32(body), total, body)
            self._kept.append(BatchKept(self._log.number, place, *facts))
            total += len(body)
        freed = max(0, len(batch.body) - (total - batch.total))
        for low, high in _runs(indexes):
            self._parts = compacted.add(self._parts, batch.offset + low, batch.offset + high, freed, self._is_complete)
            freed = 0
        self._gone.append(batch.offset)
        self.removed += len(indexes)

    def finish(self) -> list[Change]:
        """Change the topic, and return the rows that are stored again."""
        if not self._gone:
            return []
        removal = self._topic.removal
        if not removal.let_go:
            self._topic.remove(Removal(True, removal.tombstones, removal.rounds))
        self._state.counters["records_compacted"] += self.removed
        self._topic.compact(self._log, tuple(sorted(self._gone)), self._parts)
        return self._kept


def _needed(topic: Topic, log: Log) -> Iterator[tuple[int, float, str]]:
    """Yield the ranges of a log that subscribers are still to receive, or members have claimed, with their names."""
    for name, its, low, high in needed(topic):
        if its == log.id and low < log.end:
            yield low, high, name


def _runs(indexes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive indexes, each as [low, high)."""
    low = 0
    for place in range(1, len(indexes) + 1):
        if place == len(indexes) or indexes[place] != indexes[place - 1] + 1:
            yield indexes[low], indexes[place - 1] + 1
            low = place
