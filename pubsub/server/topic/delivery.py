"""Handing out: the part of a subscriber's spans that goes into one answer.

Handing out changes nothing. The stored batches are joined as they are, so the cost is per batch. A batch that two
subscribers read from the same place within one loop is joined once. A missing or damaged record is part of the stream
too: a `lost` record with the range of positions.

The rules are those of docs/explanation/continuing.md, C7; docs/explanation/get.md, G5 and G13;
docs/explanation/logs.md, L3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from pubsub.base.limits import BATCH_RECORDS_MAX
from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import HEAD_BYTES, Buffer, batch_count, batch_ends, batch_tables
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import Position
from pubsub.protocol.records import RecordsBuilder
from pubsub.server.topic.changes import LogState
from pubsub.server.topic.compacted import outside
from pubsub.server.topic.delayed import Waiting
from pubsub.server.topic.purges import PURGED
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

DROPPED: Final = "dropped"
"""Reason of a loss: the topic's setting `drop` let the records go."""

BATCHES_MAX: Final = 4096
"""Most stored batches read for one answer, so that one reader cannot delay the loop."""


@dataclass(slots=True)
class Batch:
    """A stored put batch.

    Attributes:
        offset, count: its records are [offset, offset + count).
        publisher: the publisher's number in the store.
        stamp: microseconds since 1970.
        total: bytes of the log's batches before it.
        body: as it was put; None if it was quarantined or dropped by a limit.
        sound: True if its checksum is known to match.
        damaged: True if it has no body because it was found damaged.
    """

    offset: int
    count: int
    publisher: int
    counter: int
    stamp: int
    checksum: int
    total: int
    body: Buffer | None
    sound: bool = False
    damaged: bool = False


class Tally(NamedTuple):
    """What is known of neighbouring batches without a look at each.

    Attributes:
        rows, records: the number of batches and of their records.
        first, stop: the offset of the first record, and the one after the last record.
        oldest, newest: timestamps (microseconds since 1970).
        total: bytes of the log's batches before the first one.
        counters: publishers (by number) with the first and the last counter of their records.
    """

    rows: int
    records: int
    first: int
    stop: int
    oldest: int
    newest: int
    total: int
    counters: Sequence[tuple[int, int, int]]


class BatchReader(Protocol):
    """The source of stored batches."""

    def batches(self, log: int, offset: int, high: int, *, cached: bool = True) -> Iterator[Batch]:
        """Yield the batches that hold offsets [offset, high) of a log, in order."""

    def stamps(self, log: int, offset: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
        """Return (offset, count, stamp, total) of up to `rows` batches from `offset` on."""

    def backwards(self, log: int, low: int, high: int, rows: int) -> Sequence[tuple[int, int, int]]:
        """Return (offset, count, bytes) of up to `rows` batches that begin in [low, high), the newest first."""

    def staged(self, piece: int) -> bytes:
        """Return the bytes of a fragment that a sink staged."""

    def delayed(self, row: Waiting) -> bytes | None:
        """Return the body of a delayed put; None if it is not in the store."""

    def copied(self, topic: int, group: str, log: str, offset: int) -> bytes | None:
        """Return the batch with a record that a group copied out of its log; None if it is not in the store."""

    def has_delayed(self, shelf: int) -> bool:
        """Return True if a shelf has delayed puts."""

    def log_state(self, log: str) -> LogState:
        """Return the state of a log by its ID."""

    def rows_before(self, log: int, low: int, high: int, rows: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        """Return (offset, count, publisher, counter, stamp, total) of the last batches that begin in [low, high).

        The last batch comes first.
        """

    def tally(self, log: int, low: int, high: int, rows: int) -> Tally | None:
        """Count the last batches that begin in [low, high), at most `rows`; None if there are none."""

    def records(self, log: int, low: int, high: int) -> int:
        """Return the number of records of a log with offsets in [low, high)."""

    def newest(self, log: int, low: int, offset: int) -> tuple[int, int, int, int] | None:
        """Return (offset, count, stamp, total) of the last batch that begins in [low, offset]."""

    def first_with_body(self, log: int, low: int, high: int) -> int:
        """Return the offset of the first batch in [low, high) with its bytes, or with damaged ones; `high` for none."""

    def total_before(self, log: int, offset: int) -> int | None:
        """Return the bytes of the log before the batch that holds `offset`; None if there is no such batch."""


@dataclass(slots=True)
class Answer:
    """The answer to one GET.

    Attributes:
        outcome: SUCCESS with records, LOST, or EMPTY.
        first: with LOST, the first lost position.
        last: the position of the last record, or the last lost position.
        stamp: with SUCCESS, the timestamp of the first record (microseconds since 1970).
        total: with SUCCESS, the bytes of the log before the last batch.
        reason: with LOST, DROPPED if settings of the topic let the records go, PURGED if an operator did; otherwise "".
        doubtful: with SUCCESS, True if the spans of all its records are marked as doubtful; otherwise none is.
        damaged: batches (log number, offset) found damaged.
        repairable: with LOST, the damaged batch that the other member may repair; None if there is none.
        rest: if no record is handed out, the spans after all batches that were read and left out. They may still hold
            records, because one loop reads only `BATCHES_MAX` batches.
    """

    outcome: Outcome
    body: bytes = b""
    records: int = 0
    checksum: int = 0
    first: Position | None = None
    last: Position | None = None
    damaged: list[tuple[int, int]] = field(default_factory=list)
    rest: tuple[Span, ...] | None = None
    repairable: tuple[int, int] | None = None
    stamp: int = 0
    doubtful: bool = False
    reason: str = ""
    total: int = 0


class _Full(Exception):
    """The answer has reached its limits."""


class _Walk:
    """One pass along the spans of one subscriber."""

    def __init__(self, topic: Topic, reader: BatchReader, publishers: Sequence[str], records: int, size: int) -> None:
        self._topic, self._reader, self._publishers = topic, reader, publishers
        self._records_left = min(records, BATCH_RECORDS_MAX)
        self._bytes_max = size
        self._batches_left = BATCHES_MAX
        self._purged = {log: places.unread for log, places in topic.purged.items()} if topic.purged else None
        self.builder = RecordsBuilder()
        self.last: Position | None = None
        self.stamp = self.total = 0
        self.lost: tuple[Position, Position] | None = None
        self.damaged: list[tuple[int, int]] = []
        self.repairable: tuple[int, int] | None = None
        self.reason = ""
        self.rest: tuple[Span, ...] | None = None
        self.doubtful = False

    def run(self, spans: Sequence[Span]) -> None:
        try:
            for index, span in enumerate(spans):
                log = self._topic.logs.get(span.log)
                if log is not None:
                    self._span(span, log, spans[index + 1 :])
        except _Full:
            return
        except StoreDamaged:
            if not self.builder.records and self.lost is None:
                raise  # If there are records or losses before the damage, they are handed out first.
            return
        if not self.builder.records:
            self.rest = tuple(self._still_growing(spans))

    def _still_growing(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Yield the parts of fully read spans that can still get records: those at the end of a growing log."""
        for span in spans:
            if span.high is None:
                log = self._topic.logs.get(span.log)
                yield span if log is None else span.from_offset(max(span.low, log.end))

    def _span(self, span: Span, log: Log, others: Sequence[Span]) -> None:
        high = log.end if span.high is None else min(span.high, log.end)
        place = span.low
        if place >= high:
            return
        watermark = self._topic.watermarks.get(span.watermark, {})
        for batch in self._reader.batches(log.number, place, high):
            if batch.offset > place:
                self._pass(span.log, place, batch.offset)
            place = self._batch(span, log, batch, max(place, batch.offset), high, watermark)
            self._batches_left -= 1
            if not self._batches_left:
                if not self.builder.records:
                    # A used-up range is removed, because its log may be deleted earlier than the range.
                    left = (span.from_offset(place),) if span.high is None or place < span.high else ()
                    self.rest = (*left, *others)
                raise _Full
        if place < high:
            self._pass(span.log, place, high)

    def _pass(self, log: str, place: int, stop: int) -> None:
        """Pass over offsets without a row, which compaction has removed. Report any others as lost."""
        for first, last in outside(self._topic.compacted.get(log, ()), place, stop):
            self._lose(log, first, last)

    def _batch(self, span: Span, log: Log, batch: Batch, place: int, high: int, watermark: Mapping[int, int]) -> int:
        """Add the due records of a batch to the answer; return the offset after the batch."""
        stop = min(batch.offset + batch.count, high)
        if batch.stamp <= span.since:
            return stop
        # Counters rise with the offsets, so the records to leave out are at the front of the batch.
        held = watermark.get(batch.publisher, 0) - batch.counter + 1
        first = max(place, batch.offset + held)
        if first >= stop:
            return stop
        body, damaged = batch.body, batch.damaged
        purged = self._purged is not None and batch.offset + batch.count <= self._purged.get(span.log, 0)
        if purged:
            body, damaged = None, False
        if self.lost is not None and (body is not None or damaged):
            raise _Full
        if body is None or not is_sound(batch, body, self._publishers):
            if body is not None:
                self.damaged.append((log.number, batch.offset))
            self.repairable = (log.number, batch.offset) if body is not None or damaged else None
            if body is None and self.repairable is None:
                dropped = DROPPED if self._topic.settings.dropped else ""
                return self._let_go(span.log, first, stop, PURGED if purged else dropped)
            self._lose(span.log, first, stop)
        assert body is not None  # `_lose` has ended the pass.
        self._goes_with(span)
        index = first - batch.offset
        count = min(stop - first, self._records_left)
        if self.builder.size + len(body) > self._bytes_max:
            count = self._fitting(body, index, count)
        publisher = self._publishers[batch.publisher]
        self.stamp = self.stamp or batch.stamp
        self.builder.add(span.log, first, publisher, batch.counter + index, batch.stamp, body, index, index + count)
        self.last, self.total = (span.log, first + count - 1), batch.total
        self._records_left -= count
        if not self._records_left:
            raise _Full
        return first + count

    def _goes_with(self, span: Span) -> None:
        """End the answer if the doubtful mark changes, because the mark holds for all its records or for none."""
        if self.builder.records and span.doubtful != self.doubtful:
            raise _Full
        self.doubtful = span.doubtful

    def _fitting(self, body: Buffer, index: int, count: int) -> int:
        """Return how many of the `count` records from `index` on fit into the answer; at least one if it is empty."""
        ends: Sequence[int] = batch_ends(body)
        for metadata, _ in batch_tables(body):
            if metadata:
                ends = [end + its for end, its in zip(ends, metadata, strict=True)]
        begin = ends[index - 1] if index else 0
        room = self._bytes_max - self.builder.size
        fitting = bisect_right(ends, begin + room, index, index + count) - index
        if not fitting and self.builder.records:
            raise _Full
        return max(1, fitting)

    def _lose(self, log: str, first: int, stop: int) -> None:
        """Report offsets [first, stop) as lost, in an answer of their own, after the records collected so far."""
        if not self.builder.records and self.lost is None:
            self.lost = ((log, first), (log, stop - 1))
        raise _Full

    def _let_go(self, log: str, first: int, stop: int, reason: str) -> int:
        """Report a batch without bytes as lost, in one answer with those before it. Return the offset after it."""
        joins = self.lost is None or (self.lost[1] == (log, first - 1) and self.reason == reason)
        if self.builder.records or not joins:
            raise _Full
        self.reason = reason
        self.lost = ((log, first) if self.lost is None else self.lost[0], (log, stop - 1))
        return stop


def is_sound(batch: Batch, body: Buffer, publishers: Sequence[str]) -> bool:
    """Return True if a batch is undamaged: its bytes match the checksum and its row."""
    if batch.sound:
        return True
    batch.sound = (
        crc32(body) == batch.checksum
        and len(body) >= HEAD_BYTES
        and batch_count(body) == batch.count
        and 0 < batch.publisher < len(publishers)
    )
    return batch.sound


def collect(
    topic: Topic,
    spans: Sequence[Span],
    reader: BatchReader,
    publishers: Sequence[str],
    records_max: int,
    bytes_max: int,
) -> Answer:
    """Collect the records of these spans that go into one answer.

    Args:
        spans: the ranges that the subscriber has still to receive, in order.
        publishers: names, by number.
        records_max: most records, at least 1.
        bytes_max: most bytes of records; one record is always allowed.

    Raises:
        StoreDamaged: the next record and the extent of the damage cannot be read.
    """
    walk = _Walk(topic, reader, publishers, records_max, bytes_max)
    walk.run(spans)
    if walk.lost is not None:
        first, last = walk.lost
        return Answer(
            Outcome.LOST, first=first, last=last, damaged=walk.damaged, repairable=walk.repairable, reason=walk.reason
        )
    if not walk.builder.records:
        return Answer(Outcome.EMPTY, damaged=walk.damaged, rest=walk.rest)
    body = walk.builder.build()
    return Answer(
        Outcome.SUCCESS,
        body,
        walk.builder.records,
        crc32(body),
        last=walk.last,
        damaged=walk.damaged,
        stamp=walk.stamp,
        total=walk.total,
        doubtful=walk.doubtful,
    )


def first_with_body(reader: BatchReader, log: Log) -> int:
    """Return the offset of the first batch that has its bytes or was found damaged; the log's end if there is none.

    Batches lose their bytes from the log's begin on, on purpose. Readers that begin in the log begin there.
    """
    high = log.end - log.unknown
    found = reader.first_with_body(log.number, log.low, high)
    if found < high:
        return found
    # The batches of the present loop are not stored yet.
    newest = reader.newest(log.number, log.low, high - 1)
    return log.low if newest is None else newest[0] + newest[1]
