"""The start of a new subscription: the cursor of a subscription that is made now.

    latest     after all records that are held
    earliest   at the first record that is held
    stamp      the same, without records of an earlier timestamp
    position   at the record with this position

A start before the end begins in the topic's history, so that two subscriptions receive the same order. A merge may
bring spans from another server (`merge`). The cursor's `since` leaves out the records in them that were put before the
start. Timestamps of two servers compare within the bound on skew, so a start at a position, including the end, allows
for that skew. A start at a timestamp does not, since every record has a timestamp.

The rules are those of docs/explanation/get.md, G15; docs/explanation/numbers.md, N8.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pubsub.protocol.names import EARLIEST, LATEST, Position, Start
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delivery import BatchReader, first_with_body
from pubsub.server.topic.purged import hidden_below
from pubsub.server.topic.ranges import start_of
from pubsub.server.topic.spans import ALWAYS, Span, find
from pubsub.server.topic.topic import Topic


def cursor_at(topic: Topic, start: Start, stamp: int, skew: int, reader: BatchReader) -> Cursor | None:
    """Return the cursor of a subscription with this start; None if the topic does not hold that position.

    Args:
        stamp: the server's clock.
        skew: the bound on the difference of two servers' clocks; both in microseconds.
    """
    if start == LATEST:
        return Cursor(max(0, stamp - skew), (topic.open.id, topic.open.end - 1), (Span(topic.open.id, topic.open.end),))
    if start == EARLIEST:
        return _cursor(with_bodies(topic, topic.history, reader), ALWAYS)
    if isinstance(start, int):
        since = max(0, start - 1)
        spans = with_bodies(topic, topic.history, reader)
        return _cursor(tuple(replace(span, since=max(span.since, since)) for span in spans), since)
    assert not isinstance(start, str)
    return _at_record(topic, start, skew, reader)


def _cursor(spans: tuple[Span, ...], since: int) -> Cursor:
    return Cursor(since, start_of(spans), spans)


def with_bodies(topic: Topic, spans: Iterable[Span], reader: BatchReader, *, but: str = "") -> tuple[Span, ...]:
    """Return spans of the history without the batches that were let go at the begin of each log, `but` this one.

    Their rows are left for subscribers that were subscribed before. A new reader gets no report of their loss.
    """
    hidden = hidden_below(topic)
    return tuple(
        span.from_offset(max(span.low, first_with_body(reader, topic.logs[span.log]), hidden.get(span.log, 0)))
        if span.log in topic.logs and span.log != but
        else span
        for span in spans
    )


def _at_record(topic: Topic, position: Position, skew: int, reader: BatchReader) -> Cursor | None:
    log, index = topic.logs.get(position[0]), find(topic.history, position)
    if log is None or index is None or position[1] >= log.end:
        return None
    # A batch of this loop is not stored yet, so the timestamp may be that of an earlier batch.
    batch = reader.newest(log.number, log.low, position[1])
    since = ALWAYS if batch is None else max(0, batch[2] - 1 - skew)
    later = with_bodies(topic, topic.history[index + 1 :], reader)
    return _cursor((topic.history[index].from_offset(position[1]), *later), since)
