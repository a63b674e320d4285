"""Ranges of positions along spans: what a reader of ranges asks for, and how it is cut for many readers.

A range is (after, until]: behind one position, up to and with another, along a named subscription's spans or along the
history. Positions order by the spans, not by their numbers. A merge only ends growing spans and puts others behind
them, so between two positions that were once told there is always the same, whoever holds the topic by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pubsub.protocol.names import Position, format_position
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.spans import Span, after, find
from pubsub.server.topic.topic import Log, Topic


def start_of(spans: Sequence[Span]) -> Position:
    """The position that these spans begin behind."""
    return spans[0].log, spans[0].low - 1


def behind(
    topic: Topic, spans: tuple[Span, ...], start: Position, position: Position | None
) -> tuple[Span, ...] | None:
    """The spans behind a position, or None where it lies in none of them, or beyond their end.

    Args:
        spans: all of them.
        start: the position that they begin behind, which None stands for too.
    """
    if position is None or position == start:
        return spans
    log = topic.logs.get(position[0])
    if log is None or position[1] >= log.end:
        return None
    return after(spans, position)


def up_to(topic: Topic, spans: tuple[Span, ...], start: Position, until: Position | None) -> tuple[Span, ...] | None:
    """The spans up to and with a position; None where it lies in none of them, or beyond their end.

    Args:
        start: the position that the spans begin behind: up to there they are empty.
        until: None: as far as they go today.
    """
    if until is None:
        found = [replace(span, high=_stop(topic, span)) for span in spans]
        return tuple(span for span in found if span.high is not None and span.low < span.high)
    if until == start:
        return ()
    index = find(spans, until)
    if index is None or until[1] >= topic.logs[until[0]].end:
        return None
    before = [span for span in spans[:index] if span.low < _stop(topic, span)]
    return (*before, replace(spans[index], high=until[1] + 1))


def _stop(topic: Topic, span: Span) -> int:
    log = topic.logs.get(span.log)
    end = 0 if log is None else log.end
    return end if span.high is None else min(span.high, end)


def plan(
    topic: Topic, spans: Sequence[Span], start: Position, reader: BatchReader, bytes_max: int, *, named: bool
) -> bytes:
    """What a driver needs to know of a range to cut it.

    Args:
        spans: the range, from `up_to`.
        start: the position that it lies behind.
        bytes_max: what `within` is to hold at most; 0: no limit.
        named: whether it is a named subscription's. A merge changes nothing between two of its positions. Of the
            history it does: there it leaves out of the given logs what the receiver's hold too.

    Returns:
        JSON: `latest`, the last position of the range (where it is empty, `start`); `within`, the last up to which it
        has at most `bytes_max` bytes (but one batch); `legs`: [log, first offset, one above the last, bytes]. Of a
        history, `left_out`: for each leg a number that is another one where another part of it is left out.
    """
    both = [(leg, span) for span in spans for leg in _legs(topic.logs[span.log], span, reader)]
    latest = (spans[-1].log, (spans[-1].high or 1) - 1) if spans else start
    within = _within(topic, spans, reader, bytes_max) if bytes_max else None
    facts: dict[str, object] = {"latest": format_position(latest), "within": format_position(within or latest)}
    facts["legs"] = [leg for leg, _ in both]
    if not named:
        facts["left_out"] = [_left_out(topic, span) for _, span in both]
    return json.dumps(facts, separators=(",", ":")).encode("ascii")


def _left_out(topic: Topic, span: Span) -> int:
    """What is left out of a span, as a number: merges only ever raise a watermark's counters."""
    return sum(topic.watermarks.get(span.watermark, {}).values()) + span.since


def _legs(log: Log, span: Span, reader: BatchReader) -> Iterator[list[str | int]]:
    """A span as legs of a plan. What a restored copy lacks of its log is one record, the last: nobody knows how many it
    was, and all offsets that are left would be parts for a million tasks, or as many batches."""
    stop = span.high or 0
    stored = max(span.low, log.end - log.unknown) if stop == log.end else stop
    if span.low < stored:
        yield [span.log, span.low, stored, _bytes(log, span, reader)]
    if stored < stop:
        yield [span.log, stop - 1, stop, 0]


def _totals(log: Log, span: Span, reader: BatchReader) -> Iterator[int]:
    """Bytes of the log before the span begins, and before it ends."""
    for offset in (span.low, span.high or log.end):
        total = log.total if offset >= log.end else reader.total_before(log.number, offset)
        yield log.total if total is None else total


def _bytes(log: Log, span: Span, reader: BatchReader) -> int:
    first, last = _totals(log, span, reader)
    return max(0, last - first)


def _within(topic: Topic, spans: Sequence[Span], reader: BatchReader, bytes_max: int) -> Position | None:
    """The last position up to which the spans hold at most so many bytes; None: they hold no more in all."""
    left = bytes_max
    before: Position | None = None
    for span in spans:
        log, stop = topic.logs[span.log], span.high or 0
        size = _bytes(log, span, reader)
        if size > left:
            return _cut(log, span, reader, left) or before or _end_of_first(log, span, reader)
        left, before = left - size, (span.log, stop - 1)
    return None


def _cut(log: Log, span: Span, reader: BatchReader, left: int) -> Position | None:
    """The end of the last batch up to which a span holds at most so many bytes; None: not even its first."""
    low, high = span.low, span.high or 0
    base = next(_totals(log, span, reader))
    fitting = low
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, log.low, middle)
        if batch is None:
            low = middle + 1
        elif batch[3] - base <= left:
            fitting, low = max(fitting, batch[0]), max(middle + 1, batch[0] + batch[1])
        else:
            high = min(middle, batch[0])
    return (span.log, fitting - 1) if fitting > span.low else None


def _end_of_first(log: Log, span: Span, reader: BatchReader) -> Position:
    """The end of the first batch of a span: a range is never empty for being too large."""
    rows = reader.newest(log.number, log.low, span.low)
    stop = span.high or 0
    return span.log, (min(stop, rows[0] + rows[1]) if rows and rows[0] + rows[1] > span.low else span.low + 1) - 1
