"""The place of the last N records that spans show (docs/explanation/replay.md, I4).

In a span without a watermark, offsets count the records. Only the parts of a log that compaction has touched, and spans
with a watermark, need a look at rows (`shown`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.places import begun
from pubsub.server.topic.shown import Budget, backwards, batches, stop_of
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic


class Place(NamedTuple):
    """A record: the index of its span, its offset, and its timestamp; None if it is not stored yet."""

    span: int
    offset: int
    stamp: int | None


def last(
    topic: Topic, spans: Sequence[Span], reader: BatchReader, records: int, budget: Budget | None = None
) -> Place | None:
    """Return the place of the first of the last `records` shown records, or of the first one if there are fewer.

    Args:
        budget: limits the rows that are read. If it is spent afterwards, there may be more records than were found.

    Returns:
        None if the spans show nothing.

    Raises:
        StoreDamaged: a row cannot be read.
    """
    found: tuple[int, Log, int] | None = None
    left, budget = records, budget or Budget()
    for index in range(len(spans) - 1, -1, -1):
        span = spans[index]
        log = topic.logs.get(span.log)
        if log is None:
            continue
        if span.watermark:
            left, offset = _walked(topic, span, log, reader, budget, left)
        else:
            left, offset = _counted(topic, span, log, reader, left)
        if offset is not None:
            found = index, log, offset
        if left <= 0 or budget.left <= 0:
            break
    if found is None:
        return None
    index, log, offset = found
    return Place(index, offset, _stamp(log, offset, reader))


def _stamp(log: Log, offset: int, reader: BatchReader) -> int | None:
    batch = reader.newest(log.number, log.low, offset)
    if batch is not None and batch[0] + batch[1] > offset:
        return batch[2]
    following = reader.stamps(log.number, offset, 1)
    return following[0][2] if following else None


def _walked(
    topic: Topic, span: Span, log: Log, reader: BatchReader, budget: Budget, left: int
) -> tuple[int, int | None]:
    """Return how many records are still wanted before this span, and the place of the first one found in it."""
    first = None
    for piece in backwards(topic, span, log, reader, budget):
        one = piece
        for one in batches(topic, span, log, reader, piece) if piece.records >= left else (piece,):
            left -= one.records
            first = one.first
            if left <= 0:
                return 0, one.first - left
    return left, first


def _counted(topic: Topic, span: Span, log: Log, reader: BatchReader, left: int) -> tuple[int, int | None]:
    """Return the same for a span without a watermark."""
    low = begun(topic, span, span.since, reader).low
    high, first = stop_of(log, span), None
    for part in reversed(topic.compacted.get(log.id, ())):
        begin, stop = max(part.low, low), min(part.high, high)
        if begin >= stop:
            continue
        if high - stop >= left:
            break
        if high > stop:
            left, first = left - (high - stop), stop
        complete = (begin, stop) == (part.low, part.high)
        kept = part.kept if complete and part.kept is not None else reader.records(log.number, begin, stop)
        if kept >= left:
            return 0, _from_end(log, begin, stop, left, reader)
        if kept:
            left, first = left - kept, begin
        high = begin
    if high - low >= left:
        return 0, high - left
    return (left - (high - low), low) if high > low else (left, first)


def _from_end(log: Log, low: int, high: int, records: int, reader: BatchReader) -> int:
    """Return the offset in [low, high) from which there are this many records; there are at least as many."""
    while high - low > 1:
        middle = (low + high) // 2
        upper = reader.records(log.number, middle, high)
        if upper >= records:
            low = middle
        else:
            records, high = records - upper, middle
    return low
