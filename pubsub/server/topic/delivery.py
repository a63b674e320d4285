"""Handing out: what of a subscriber's spans goes into one answer.

Handing out changes nothing. The stored batches are joined as they are, so the cost is per batch; a batch that two
subscribers read from the same place within one loop is joined once. What should be there and is not, or is not what
was written, is a record of the stream too: `lost`, from here to there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from zlib import crc32

from pubsub.base.limits import BATCH_RECORDS_MAX
from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import HEAD_BYTES, Buffer, batch_count, batch_ends, batch_tables
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import Position
from pubsub.protocol.records import RecordsBuilder
from pubsub.server.topic.changes import LogState
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

BATCHES_MAX: Final = 4096
"""Stored batches looked at for one answer, so that one reader cannot hold up the loop."""


@dataclass(slots=True)
class Batch:
    """A stored put batch.

    Attributes:
        offset, count: its records are [offset, offset + count).
        publisher: by its number in the store.
        stamp: microseconds since 1970.
        total: bytes of the log's batches before it.
        body: as it was put; None where it was set aside or went by a limit.
        sound: whether its checksum is known to be right.
        damaged: whether it has no body because it was found damaged.
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


class BatchReader(Protocol):
    """Where stored batches are read from."""

    def batches(self, log: int, offset: int, high: int) -> Iterator[Batch]:
        """The batches that hold offsets [offset, high) of a log, in order."""

    def stamps(self, log: int, offset: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
        """(offset, count, stamp, total) of up to `rows` batches from `offset` on."""

    def staged(self, piece: int) -> bytes:
        """The bytes of a piece that a sink staged."""

    def log_state(self, log: str) -> LogState:
        """What is known of a log by its ID."""

    def newest(self, log: int, low: int, offset: int) -> tuple[int, int, int, int] | None:
        """The same of the last batch that begins in [low, offset]."""

    def total_before(self, log: int, offset: int) -> int | None:
        """Bytes of the log before the batch that holds `offset`; None where there is no such batch."""


@dataclass(slots=True)
class Answer:
    """What one GET gets.

    Attributes:
        outcome: SUCCESS with records, LOST, or EMPTY.
        first: with LOST, the first lost position.
        last: the position of the last record, or the last lost one.
        stamp: with SUCCESS, that of the first record (microseconds since 1970).
        doubtful: with SUCCESS, whether the spans of its records are marked so: of all of them or of none.
        damaged: batches (log number, offset) found to be bad.
        mendable: with LOST, the batch whose bytes are not what was put; None where there is none to be mended.
        rest: where nothing is to be handed out: the spans behind all that was looked at and is left out. Something may
            lie in them already, where that was as much as one loop looks at.
    """

    outcome: Outcome
    body: bytes = b""
    records: int = 0
    checksum: int = 0
    first: Position | None = None
    last: Position | None = None
    damaged: list[tuple[int, int]] = field(default_factory=list)
    rest: tuple[Span, ...] | None = None
    mendable: tuple[int, int] | None = None
    stamp: int = 0
    doubtful: bool = False


class _Full(Exception):
    """The answer holds as much as was asked for."""


class _Walk:
    """One walk along the spans of one subscriber."""

    def __init__(self, topic: Topic, reader: BatchReader, publishers: Sequence[str], records: int, size: int) -> None:
        self._topic, self._reader, self._publishers = topic, reader, publishers
        self._records_left = min(records, BATCH_RECORDS_MAX)
        self._bytes_max = size
        self._batches_left = BATCHES_MAX
        self.builder = RecordsBuilder()
        self.last: Position | None = None
        self.stamp = 0
        self.lost: tuple[Position, Position] | None = None
        self.damaged: list[tuple[int, int]] = []
        self.mendable: tuple[int, int] | None = None
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
            if not self.builder.records:
                raise  # Records in front of the damage are handed out first; then there are none.
            return
        if not self.builder.records:
            self.rest = tuple(self._still_growing(spans))

    def _still_growing(self, spans: Iterable[Span]) -> Iterator[Span]:
        """What is left of spans of which all that is there was looked at: more can come only where a log grows."""
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
                self._lose(span.log, place, batch.offset)
            place = self._batch(span, log, batch, max(place, batch.offset), high, watermark)
            self._batches_left -= 1
            if not self._batches_left:
                if not self.builder.records:
                    # A range that is used up goes: its log will be gone before it.
                    left = (span.from_offset(place),) if span.high is None or place < span.high else ()
                    self.rest = (*left, *others)
                raise _Full
        if place < high:
            self._lose(span.log, place, high)

    def _batch(self, span: Span, log: Log, batch: Batch, place: int, high: int, watermark: Mapping[int, int]) -> int:
        """Take what of the batch is due; returns the offset behind it."""
        stop = min(batch.offset + batch.count, high)
        if batch.stamp <= span.since:
            return stop
        # Counters rise with the offsets, so what is left out is the front of the batch.
        held = watermark.get(batch.publisher, 0) - batch.counter + 1
        first = max(place, batch.offset + held)
        if first >= stop:
            return stop
        body = batch.body
        if body is None or not self._is_sound(batch, body):
            if body is not None:
                self.damaged.append((log.number, batch.offset))
            self.mendable = (log.number, batch.offset) if body is not None or batch.damaged else None
            self._lose(span.log, first, stop)
        assert body is not None  # a lost batch has ended the walk
        self._goes_with(span)
        index = first - batch.offset
        count = min(stop - first, self._records_left)
        if self.builder.size + len(body) > self._bytes_max:
            count = self._fitting(body, index, count)
        publisher = self._publishers[batch.publisher]
        self.stamp = self.stamp or batch.stamp
        self.builder.add(span.log, first, publisher, batch.counter + index, batch.stamp, body, index, index + count)
        self.last = (span.log, first + count - 1)
        self._records_left -= count
        if not self._records_left:
            raise _Full
        return first + count

    def _goes_with(self, span: Span) -> None:
        """An answer is all doubtful or not at all: it ends where the mark does."""
        if self.builder.records and span.doubtful != self.doubtful:
            raise _Full
        self.doubtful = span.doubtful

    def _is_sound(self, batch: Batch, body: Buffer) -> bool:
        """Whether a batch is what was put: its bytes, and what its row says of them."""
        if batch.sound:
            return True
        batch.sound = (
            crc32(body) == batch.checksum
            and len(body) >= HEAD_BYTES
            and batch_count(body) == batch.count
            and 0 < batch.publisher < len(self._publishers)
        )
        return batch.sound

    def _fitting(self, body: Buffer, index: int, count: int) -> int:
        """How many of the `count` records from `index` on fit into the answer; at least one if it is empty."""
        ends: Sequence[int] = batch_ends(body)
        for beside, _ in batch_tables(body):
            if beside:
                ends = [end + its for end, its in zip(ends, beside, strict=True)]
        begin = ends[index - 1] if index else 0
        room = self._bytes_max - self.builder.size
        fitting = bisect_right(ends, begin + room, index, index + count) - index
        if not fitting and self.builder.records:
            raise _Full
        return max(1, fitting)

    def _lose(self, log: str, first: int, stop: int) -> None:
        """Offsets [first, stop) cannot be handed out: an answer of their own, after what is joined already."""
        if not self.builder.records:
            self.lost = ((log, first), (log, stop - 1))
        raise _Full


def collect(
    topic: Topic,
    spans: Sequence[Span],
    reader: BatchReader,
    publishers: Sequence[str],
    records_max: int,
    bytes_max: int,
) -> Answer:
    """What of these spans goes into one answer.

    Args:
        spans: what the subscriber is still to receive, in order.
        publishers: names, by number.
        records_max: at most so many records, at least 1.
        bytes_max: at most so many bytes of records, but always one record.

    Raises:
        StoreDamaged: the very next of it cannot be read, nor how far that goes.
    """
    walk = _Walk(topic, reader, publishers, records_max, bytes_max)
    walk.run(spans)
    if walk.lost is not None:
        first, last = walk.lost
        return Answer(Outcome.LOST, first=first, last=last, damaged=walk.damaged, mendable=walk.mendable)
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
        doubtful=walk.doubtful,
    )
