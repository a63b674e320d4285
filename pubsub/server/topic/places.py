"""Places in a log by timestamp, found by bisection over the rows of its batches.

Timestamps rise with the offsets of a log (docs/explanation/numbers.md, N8), so a place costs about twenty look-ups in a
million batches. Along a history they do not rise, because a merge brings the records of another server. So a limit by
timestamp applies to each span by itself.

The rules are those of docs/explanation/replay.md, I1; docs/explanation/replay.md, I2.
"""

from __future__ import annotations

from msgspec.structs import replace

from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.spans import ALWAYS, Span
from pubsub.server.topic.topic import Log, Topic


def cut(reader: BatchReader, log: Log, floor: int, old: int) -> int:
    """Return the offset below which every batch of a log is at least as old as `old` and ends at or below `floor`."""
    place = low = log.low
    high = min(floor, log.end)
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, log.low, middle)
        if batch is None:  # The store has no batch there.
            place = low = middle + 1
            continue
        offset, count, stamp, _ = batch
        if stamp <= old and offset + count <= floor:
            place = max(place, offset + count)
            low = max(offset + count, middle + 1)
        else:
            high = offset
    return place


def begun(topic: Topic, span: Span, since: int, reader: BatchReader) -> Span:
    """Return a span without the records that have timestamps up to `since`.

    The batches of the present loop are not stored yet, so the result may begin before some of them.
    """
    log = topic.logs.get(span.log)
    since = max(span.since, since)
    if since == ALWAYS or log is None:
        return span
    span = replace(span, since=since)
    newest = reader.newest(log.number, log.low, log.end - 1)
    if newest is None:
        return span
    low = cut(reader, log, newest[0] + newest[1], since)
    return span.from_offset(max(span.low, low if span.high is None else min(low, span.high)))


def ended(topic: Topic, span: Span, before: int, reader: BatchReader) -> Span:
    """Return a span without the records that have the timestamp `before` or a later one. All batches are stored."""
    log = topic.logs.get(span.log)
    if log is None:
        return span
    high = cut(reader, log, log.end, before - 1)
    return replace(span, high=max(span.low, high if span.high is None else min(high, span.high)))
