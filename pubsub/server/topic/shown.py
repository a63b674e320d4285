"""The records that spans show, read from the rows of their batches without the bodies.

A span shows the records that neither its `watermark` nor its `since` leaves out. Offsets that no row holds are no
records. Only the end of the open log may have records without rows: those of the present loop.

`since` leaves out a prefix of the span, because timestamps rise with the offsets. So offsets count the records of a
span without a watermark. A span with one is counted in pieces of many batches. Most pieces show all of their records or
none, and the others are looked at batch by batch.

The rules are those of docs/explanation/replay.md, I4; docs/explanation/replay.md, I11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.server.topic.compacted import removed, within
from pubsub.server.topic.delivery import BatchReader, Tally
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

ROWS: Final = 1_024
"""Most rows in one piece; the first piece has fewer."""

ROWS_MAX: Final = 20_000
"""Most rows of spans with watermarks that are read for one start, or for one range of which the records are counted.

They take about 10 ms of the loop."""


class Shown(NamedTuple):
    """Shown records: some of one batch, or all of several neighbouring batches.

    Attributes:
        first, stop: their offsets are in [first, stop).
        records: their number.
        oldest, newest: timestamps.
        size: bytes of the batches.
    """

    first: int
    stop: int
    records: int
    oldest: int
    newest: int
    size: int


@dataclass(slots=True)
class Budget:
    """The rows that may still be read."""

    left: int = ROWS_MAX


def backwards(topic: Topic, span: Span, log: Log, reader: BatchReader, budget: Budget) -> Iterator[Shown]:
    """Yield the shown records of a closed span, the last ones first, until the budget is spent.

    Raises:
        StoreDamaged: a row cannot be read.
    """
    watermark = topic.watermarks.get(span.watermark, {})
    place, many = stop_of(log, span), 16
    following = _total(log, place, reader)
    while place > span.low and budget.left > 0:
        piece = reader.tally(log.number, log.low, place, min(many, budget.left))
        if piece is None:
            return
        budget.left -= piece.rows
        many = min(4 * many, ROWS)
        inside = span.low <= piece.first and piece.stop <= place
        shows = _shows(piece, watermark, span.since) if inside else None
        if shows is None:
            yield from _each(span, log, watermark, reader, place, piece.rows)
        elif shows:
            size = following - piece.total
            yield Shown(piece.first, piece.stop, piece.records, piece.oldest, piece.newest, size)
        place, following = min(place, piece.first), piece.total


def batches(topic: Topic, span: Span, log: Log, reader: BatchReader, piece: Shown) -> Iterator[Shown]:
    """Yield the shown records of each batch of a piece, the last one first."""
    watermark = topic.watermarks.get(span.watermark, {})
    low = span.from_offset(piece.first)
    yield from _each(low, log, watermark, reader, piece.stop, ROWS)


def _shows(piece: Tally, watermark: Mapping[int, int], since: int) -> bool | None:
    """Return True if a span shows all records of a piece, False if it shows none, None if it may show a part."""
    if piece.newest <= since:
        return False
    known = [(first > counter, last <= counter)
             for publisher, first, last in piece.counters for counter in (watermark.get(publisher, 0),)]  # fmt: skip
    if all(left_out for _, left_out in known):
        return False
    return True if piece.oldest > since and all(shown for shown, _ in known) else None


def _each(
    span: Span, log: Log, watermark: Mapping[int, int], reader: BatchReader, place: int, many: int
) -> Iterator[Shown]:
    """Yield the shown records of each of up to `many` batches before a place, the last one first."""
    following = _total(log, place, reader)
    for offset, count, publisher, counter, stamp, total in reader.rows_before(log.number, log.low, place, many):
        if place <= span.low:
            return
        # Counters rise with the offsets, so the records left out are at the front of the batch.
        first = max(span.low, offset, offset + watermark.get(publisher, 0) - counter + 1)
        stop = min(place, offset + count)
        if first < stop and stamp > span.since:
            yield Shown(first, stop, stop - first, stamp, stamp, max(0, following - total))
        place, following = min(place, offset), total


def stop_of(log: Log, span: Span) -> int:
    """Return the offset after the last record of a span that may be stored."""
    end = log.end - log.unknown
    return end if span.high is None else min(span.high, end)


@dataclass(slots=True)
class Times:
    """The records that spans show.

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
    """Count the records that these spans show. They begin after the records that `since` leaves out (`places.begun`).

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
    """Count the records that a span with a watermark shows."""
    for one in backwards(topic, span, log, reader, budget):
        found.saw(one.oldest, one.newest)
        found.records += one.records
        found.bytes += one.size
    found.exact &= budget.left > 0


def _total(log: Log, offset: int, reader: BatchReader) -> int:
    """Return the bytes of the log's batches up to the one that holds the offset before this one."""
    following = reader.stamps(log.number, offset, 1)
    return following[0][3] if following else log.total
