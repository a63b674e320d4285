"""The waiting records of a group from the first one on, or in a range that a member holds.

A scan yields runs of records, and ranges of records that are lost, in the order in which they are handed out. Offsets
with nothing to hand out are collected, so that they are dropped from the spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pubsub.protocol.batch import HEAD_BYTES, batch_ends, batch_tables
from pubsub.protocol.group_bodies import lost_part
from pubsub.server.groups.index import PartIndex, parts_in
from pubsub.server.topic.compacted import outside
from pubsub.server.topic.delivery import DROPPED, Batch, BatchReader, is_sound
from pubsub.server.topic.group import WAITING, Group, common
from pubsub.server.topic.group_rows import CopyRow
from pubsub.server.topic.purges import PURGED
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic, ends_unknown


class Run(NamedTuple):
    """Records of one batch, or lost ones.

    Attributes:
        low, high: their offsets. In a keyed group, those of one part in this range.
        begin: a range that a member claims may begin here, where the run before ended; at most `low`.
        batch: has the records; None: they are lost.
        reason: of the loss, as in the answer to GET.
        damaged: the batch (log and offset) that was found damaged, perhaps only here.
        publisher, counter: of the first record.
        copy: the records were copied out of the log.
    """

    part: int
    log: str
    low: int
    high: int
    begin: int
    batch: Batch | None = None
    reason: str = ""
    damaged: tuple[int, int] | None = None
    publisher: str = ""
    counter: int = 0
    copy: CopyRow | None = None

    @property
    def first(self) -> int:
        """The number of the first record in the batch."""
        return 0 if self.copy is not None or self.batch is None else self.low - self.batch.offset

    def size(self) -> int:
        """Return the bytes of the records with their keys and headers."""
        if self.batch is None or self.batch.body is None:
            return 0
        if self.copy is not None:
            return self.copy.size
        body, first, stop = self.batch.body, self.first, self.first + self.high - self.low
        tables = (batch_ends(body), *(ends for ends, _ in batch_tables(body)))
        return sum(ends[stop - 1] - (ends[first - 1] if first else 0) for ends in tables if ends)

    def until(self, count: int) -> Run:
        """Return the first records of the run."""
        return self if self.high - self.low <= count else self._replace(high=self.low + count)


class Scan:
    """One look at the records of a group.

    Args:
        index: of a keyed group; None: it is shared.
        oldest: batches with timestamps up to this one are too old to be handed out; 0: none are.

    Attributes:
        passed: by part, ranges in which nothing is to be handed out.
    """

    def __init__(
        self,
        topic: Topic,
        group: Group,
        reader: BatchReader,
        publishers: Sequence[str],
        index: PartIndex | None = None,
        oldest: int = 0,
    ) -> None:
        self._topic, self._group, self._reader, self._publishers = topic, group, reader, publishers
        self._index, self._oldest = index, oldest
        self.passed: dict[int, list[tuple[str, int, int]]] = {}
        self.expired = 0

    def front(self, part: int) -> Iterator[Run]:
        """Yield the waiting records of a part.

        Raises:
            StoreDamaged: a row cannot be read.
        """
        for row in list(self._group.copies.values()):
            if row.part == part and row.state == WAITING:
                yield self._copy(row)
        spans = self._topic.subscriptions[self._group.key(part)].cursor.backlog
        yield from self._runs(part, spans)

    def held(self, part: int, log: str, low: int, high: int) -> Iterator[Run]:
        """Yield the records in a range that a member holds. Raises StoreDamaged as `front` does."""
        place = low
        for a, b in [*common(self._group.copied.get((part, log)), low, high), (high, high)]:
            if place < a:
                yield from self._runs(part, (Span(log, place, a),))
            for offset in range(a, b):
                yield self._copy(self._group.copies[log, offset])
            place = b

    def _copy(self, row: CopyRow) -> Run:
        body = self._reader.copied(self._topic.number, self._group.name, row.log, row.offset)
        run = Run(
            row.part, row.log, row.offset, row.offset + 1, row.offset, None, "", None, row.publisher, row.counter, row
        )
        if body is None:
            return run
        return run._replace(batch=Batch(row.offset, 1, 0, row.counter, row.stamp, 0, 0, body, sound=True))

    def _pass(self, part: int, log: str, low: int, high: int) -> None:
        if low < high:
            self.passed.setdefault(part, []).append((log, low, high))

    def _runs(self, part: int, spans: Iterable[Span]) -> Iterator[Run]:
        for span in spans:
            log = self._topic.logs.get(span.log)
            if log is None:
                self._pass(part, span.log, span.low, span.high or span.low)
                continue
            high = log.end if span.high is None else min(span.high, log.end)
            watermark = self._topic.watermarks.get(span.watermark, {})
            if span.low >= high:
                continue
            records = self._shared if self._index is None else self._keyed
            yield from records(part, span, log, high, watermark)

    # A shared group

    def _shared(self, part: int, span: Span, log: Log, high: int, watermark: Mapping[int, int]) -> Iterator[Run]:
        place = begin = span.low
        if place < log.low:
            self._pass(part, log.id, place, min(log.low, high))
            place = begin = log.low
        for batch in self._reader.batches(log.number, place, high):
            if batch.offset > place:
                yield from self._missing(part, log, place, batch.offset)
                place = batch.offset
            stop = min(batch.offset + batch.count, high)
            first = self._first(span, batch, place, stop, watermark)
            if first > place:
                self._pass(part, log.id, place, first)
                begin = first
            if first < stop:
                for low, last, _ in self._group.facts.pieces(part, log.id, first, stop):
                    yield self._run(part, log, batch, low, last, begin)
                    begin = last
            place = begin = stop
        if place < high:
            yield from self._missing(part, log, place, high)

    def _first(self, span: Span, batch: Batch, place: int, stop: int, watermark: Mapping[int, int]) -> int:
        """Return the first offset of [place, stop) in a batch that is handed out; `stop` for none."""
        if batch.stamp <= span.since:
            return stop
        if batch.stamp <= self._oldest:
            self.expired += stop - place
            return stop
        return min(stop, max(place, batch.offset + watermark.get(batch.publisher, 0) - batch.counter + 1))

    def _missing(self, part: int, log: Log, low: int, high: int) -> Iterator[Run]:
        """Yield the offsets without a row that compaction has not removed: they are lost.

        Those beyond the end of a restored copy are passed over. A server that has their records brings its own logs in
        a merge, and the operator who resumed the group knows of the copy (GR21).
        """
        end = low
        for first, last in outside(self._topic.compacted.get(log.id, ()), low, high):
            if ends_unknown(self._topic, (log.id, last - 1)):
                break
            self._pass(part, log.id, end, first)
            yield Run(part, log.id, first, last, first)
            end = last
        self._pass(part, log.id, end, high)

    def _run(self, part: int, log: Log, batch: Batch, low: int, high: int, begin: int) -> Run:
        purged = self._topic.purged.get(log.id) if self._topic.purged else None
        if purged is not None and batch.offset + batch.count <= purged.unread:
            return Run(part, log.id, low, high, low, reason=PURGED)
        body = batch.body
        if body is None and not batch.damaged:
            return Run(part, log.id, low, high, low, reason=DROPPED if self._topic.settings.dropped else "")
        if body is None or len(body) < HEAD_BYTES or not is_sound(batch, body, self._publishers):
            return Run(part, log.id, low, high, low, damaged=(log.number, batch.offset))
        name, counter = self._publishers[batch.publisher], batch.counter + low - batch.offset
        return Run(part, log.id, low, high, begin, batch, publisher=name, counter=counter)

    # A keyed group

    def _keyed(self, part: int, span: Span, log: Log, high: int, watermark: Mapping[int, int]) -> Iterator[Run]:
        assert self._index is not None
        batch: Batch | None = None
        parts: list[int] = []
        begin, lost = max(span.low, log.low), part == lost_part(log.id, self._group.row.parts)
        if span.low < begin:
            self._pass(part, log.id, span.low, min(begin, high))
        for offset in self._index.offsets(log, part, begin, high):
            if batch is None or not batch.offset <= offset < batch.offset + batch.count:
                batch = next(iter(self._reader.batches(log.number, offset, offset + 1)), None)
                parts = []
            if batch is None:
                yield Run(part, log.id, offset, offset + 1, offset)
                begin = offset + 1
                continue
            if self._first(span, batch, offset, offset + 1, watermark) > offset:
                self._pass(part, log.id, begin, offset + 1)
                begin = offset + 1
                continue
            run = self._run(part, log, batch, offset, offset + 1, begin)
            if lost and run.batch is not None and run.batch.body is not None:
                parts = parts or parts_in(batch, run.batch.body, self._publishers, self._group.row.parts)
                if parts[offset - batch.offset] != part:  # Its part went on while it was damaged, before its repair.
                    run = Run(part, log.id, offset, offset + 1, offset)
            if run.batch is None and not lost and run.damaged is None:
                self._index.forget(log, offset)  # The part that is told of losses reports it.
                self._pass(part, log.id, begin, offset + 1)
            else:
                yield run
            begin = offset + 1
        if span.high is not None:
            self._pass(part, log.id, begin, high)
