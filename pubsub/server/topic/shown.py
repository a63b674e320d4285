"""The records that spans show, read from the rows of their batches without the bodies.

A span shows the records that neither its `watermark` nor its `since` leaves out. Offsets that no row holds are no
records. Only the end of the open log may have records without rows: those of the present loop.

The rules are those of docs/explanation/replay.md, I4; docs/explanation/replay.md, I11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.server.topic.compacted import removed, within
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

ROWS: Final = 1_024
"""Most rows read at once; the first look reads fewer."""

ROWS_MAX: Final = 100_000
"""Most rows read for one start, or for one range of which the records are counted."""


class Shown(NamedTuple):
    """The shown records of one batch: offsets [first, stop) in the span with this index.

    Attributes:
        stamp: timestamp of the batch; None if it is not stored yet.
        total: bytes of the log's batches before the batch.
    """

    span: int
    first: int
    stop: int
    stamp: int | None
    total: int


@dataclass(slots=True)
class Budget:
    """The rows that may still be read."""

    left: int = ROWS_MAX


def backwards(topic: Topic, spans: Sequence[Span], reader: BatchReader, budget: Budget) -> Iterator[Shown]:
    """Yield the shown records of each batch, the last one first, until the budget is spent.

    Raises:
        StoreDamaged: a row cannot be read.
    """
    many = 16
    for index in range(len(spans) - 1, -1, -1):
        span = spans[index]
        log = topic.logs.get(span.log)
        if log is None:
            continue
        place = stop_of(log, span)
        if span.high is None and not log.unknown:
            newest = reader.newest(log.number, log.low, log.end - 1)
            stored = max(span.low, log.low if newest is None else newest[0] + newest[1])
            if stored < place:
                yield Shown(index, stored, place, None, log.total)
                place = stored
        watermark = topic.watermarks.get(span.watermark, {})
        while place > span.low and budget.left > 0:
            rows = reader.rows_before(log.number, log.low, place, min(many, budget.left))
            budget.left -= len(rows)
            many = min(4 * many, ROWS)
            for offset, count, publisher, counter, stamp, total in rows:
                # Counters rise with the offsets, so the records left out are at the front of the batch.
                first = max(span.low, offset, offset + watermark.get(publisher, 0) - counter + 1)
                stop = min(place, offset + count)
                if first < stop and stamp > span.since:
                    yield Shown(index, first, stop, stamp, total)
                place = min(place, offset)
            if not rows:
                break
        if budget.left <= 0:
            return


def stop_of(log: Log, span: Span) -> int:
    """Return the offset after the last record of a span that may be stored."""
    end = log.end - log.unknown
    return end if span.high is None else min(span.high, end)


@dataclass(slots=True)
class Times:
    """What spans show.

    Attributes:
        oldest, newest: timestamps (microseconds since 1970); None if nothing is shown.
        records, bytes: their number and size; bytes count whole batches.
        exact: False if records are missing in the count, because they are too many to be looked at one by one.
    """

    oldest: int | None = None
    newest: int | None = None
    records: int = 0
    bytes: int = 0
    exact: bool = True

    def saw(self, oldest: int, newest: int) -> None:
        self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)
        self.newest = newest if self.newest is None else max(self.newest, newest)


def times(topic: Topic, spans: Sequence[Span], reader: BatchReader) -> Times:
    """Count what these spans show. They begin after the records that their `since` leaves out (`places.begun`).

    Raises:
        StoreDamaged: a row cannot be read.
    """
    found, budget = Times(), Budget()
    for span in spans:
        log = topic.logs.get(span.log)
        if log is None or span.low >= (stop := stop_of(log, span)):
            continue
        if span.watermark:
            _count(topic, span, log, reader, budget, found)
            continue
        first, last = reader.stamps(log.number, span.low, 1), reader.newest(log.number, log.low, stop - 1)
        holding = reader.newest(log.number, log.low, span.low)
        if holding is not None and holding[0] + holding[1] > span.low:
            first = [holding]
        if not first or last is None or first[0][0] > last[0]:
            continue
        found.saw(first[0][2], last[2])
        found.records += stop - span.low
        found.bytes += max(0, _total(log, stop, reader) - first[0][3])
        if log.id in topic.compacted:
            parts, known = within(topic.compacted[log.id], span.low, stop)
            found.records -= removed(parts)
            found.bytes -= sum(one.freed for one in parts)
            found.exact &= known
    return found


def _count(topic: Topic, span: Span, log: Log, reader: BatchReader, budget: Budget, found: Times) -> None:
    """Count what a span with a watermark shows, batch by batch."""
    for one in backwards(topic, [span], reader, budget):
        assert one.stamp is not None  # Such a span is closed.
        found.saw(one.stamp, one.stamp)
        found.records += one.stop - one.first
        found.bytes += _total(log, one.stop, reader) - one.total
    found.exact &= budget.left > 0


def _total(log: Log, offset: int, reader: BatchReader) -> int:
    """Return the bytes of the log's batches up to the one that holds the offset before this one."""
    following = reader.stamps(log.number, offset, 1)
    return following[0][3] if following else log.total
