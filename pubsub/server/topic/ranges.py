"""Ranges of positions along spans, as a reader of ranges requests them, and their division among many readers.

A range is (after, until]: it excludes one position and includes the other, along a named subscription's spans or along
the history. The spans define the order of positions, not their numbers. A merge only ends growing spans and adds others
after them. So a range between two positions that were once returned always holds the same records, whichever server
holds the topic later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pubsub.protocol.names import Position, format_position
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.removal import ROUNDS_MAX
from pubsub.server.topic.spans import Span, after, find
from pubsub.server.topic.topic import Log, Topic


def start_of(spans: Sequence[Span]) -> Position:
    """Return the position before the first record of these spans."""
    return spans[0].log, spans[0].low - 1


def behind(
    topic: Topic, spans: tuple[Span, ...], start: Position, position: Position | None
) -> tuple[Span, ...] | None:
    """Return the spans after a position; None if no span holds it, or it lies beyond their end.

    Args:
        spans: all of them.
        start: the position before the spans; None means the same position.
    """
    if position is None or position == start:
        return spans
    log = topic.logs.get(position[0])
    if log is None or position[1] >= log.end:
        return None
    return after(spans, position)


def up_to(topic: Topic, spans: tuple[Span, ...], start: Position, until: Position | None) -> tuple[Span, ...] | None:
    """Return the spans up to and including a position; None if no span holds it, or it lies beyond their end.

    Args:
        start: the position before the spans; the spans up to there are empty.
        until: None: the present end of the spans.
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


def misses_tombstones(topic: Topic, after: Position | None, known: int) -> bool:
    """Return True if a reader may have a value of a key that was deleted, and never receives the deletion.

    Args:
        after: the position that it has reached; None: it begins.
        known: number of the tombstones that had gone at its last read; -1: it asks for no such answer.
    """
    removal = topic.removal
    if known < 0 or after is None or known == removal.tombstones:
        return False
    if known > removal.tombstones or not removal.rounds:
        return True
    later = [one for one in removal.rounds if one.number > known]
    if len(later) == len(removal.rounds) and len(later) == ROUNDS_MAX:
        return True  # Rounds that are forgotten may be later, too.
    here = find(topic.history, after)
    places = [find(topic.history, (one.log, one.offset)) for one in later]
    if here is None or None in places:
        return True
    return any((place, one.offset) > (here, after[1]) for place, one in zip(places, later, strict=True))


def plan(
    topic: Topic, spans: Sequence[Span], start: Position, reader: BatchReader, bytes_max: int, *, named: bool
) -> bytes:
    """Return the facts that a driver needs to divide a range.

    Args:
        spans: the range, from `up_to`.
        start: the position before the range.
        bytes_max: byte limit of `within`; 0: no limit.
        named: True for a range of a named subscription. A merge changes nothing between two of its positions. It does
            change a history: there it leaves out records of the given logs that the receiver's logs hold too.

    Returns:
        JSON: `latest`, the last position of the range (`start` if it is empty); `within`, the last position up to which
            the range has at most `bytes_max` bytes, but at least one batch; `legs`: [log, first offset, one above the
            last, bytes]. For a history, `left_out`: a number for each leg that changes if other records of it are left
            out.
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
    """Encode the records left out of a span as a number; merges only ever raise a watermark's counters."""
    return sum(topic.watermarks.get(span.watermark, {}).values()) + span.since


def _legs(log: Log, span: Span, reader: BatchReader) -> Iterator[list[str | int]]:
    """Divide a span into legs of a plan.

    The records that a restored copy lacks of its log count as one record, the last. Their number is unknown. All
    offsets that are left would give a driver a million tasks, or as many batches.
    """
    stop = span.high or 0
    stored = max(span.low, log.end - log.unknown) if stop == log.end else stop
    if span.low < stored:
        yield [span.log, span.low, stored, _bytes(log, span, reader)]
    if stored < stop:
        yield [span.log, stop - 1, stop, 0]


def _totals(log: Log, span: Span, reader: BatchReader) -> Iterator[int]:
    """Yield the bytes of the log before the span begins, and before it ends."""
    for offset in (span.low, span.high or log.end):
        total = log.total if offset >= log.end else reader.total_before(log.number, offset)
        yield log.total if total is None else total


def _bytes(log: Log, span: Span, reader: BatchReader) -> int:
    first, last = _totals(log, span, reader)
    return max(0, last - first)


def _within(topic: Topic, spans: Sequence[Span], reader: BatchReader, bytes_max: int) -> Position | None:
    """Return the last position up to which the spans hold at most `bytes_max` bytes; None if all fit."""
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
    """Return the end of the last batch up to which a span holds at most `left` bytes; None if no batch fits."""
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
    """Return the end of a span's first batch, so that a range is never empty because its first batch is too large."""
    rows = reader.newest(log.number, log.low, span.low)
    stop = span.high or 0
    return span.log, (min(stop, rows[0] + rows[1]) if rows and rows[0] + rows[1] > span.low else span.low + 1) - 1
