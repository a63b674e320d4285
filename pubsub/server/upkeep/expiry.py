"""Batches that are too old to be delivered, by the setting `expire` of their topic (docs/explanation/defaults.md, Y3).

Spans are cut before a walk, so that no record is looked at. An expired batch stays in a subscriber's backlog until the
subscriber acknowledges a later record. A client may have processed the batch and not yet acknowledged it, and its
acknowledgement must find the position.
"""

from __future__ import annotations

from pubsub.base.limits import NUMBER_MAX
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.places import cut
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic


def unexpired(topic: Topic, spans: tuple[Span, ...], stamp: int, reader: BatchReader) -> tuple[Span, ...]:
    """Return the spans without the batches that are too old.

    Args:
        stamp: the present time (microseconds since 1970).

    Raises:
        StoreDamaged: a row cannot be read.
    """
    age = topic.in_force.expire_age
    if age is None:
        return spans
    return tuple(_unexpired(topic, span, stamp - age, reader) for span in spans)


def _unexpired(topic: Topic, span: Span, oldest: int, reader: BatchReader) -> Span:
    log = topic.logs.get(span.log)
    if log is None:
        return span
    first = reader.newest(log.number, log.low, span.low)  # Mostly the first batch is young enough.
    if first is not None and first[0] + first[1] > span.low and first[2] > oldest:
        return span
    place = min(expired_below(log, oldest, reader), log.end if span.high is None else span.high)
    return span if place <= span.low else span.from_offset(place)


def expired_below(log: Log, oldest: int, reader: BatchReader) -> int:
    """Return the offset below which every batch of a log has at most this stamp."""
    return cut(reader, log, NUMBER_MAX, oldest)


def count(cursor: Cursor, before: tuple[Span, ...], after: tuple[Span, ...]) -> int:
    """Count the records that were left out, each once, and return their number."""
    left_out = 0
    for old, new in zip(before, after, strict=True):
        low = max(old.low, cursor.expired_below.get(old.log, 0))
        if old.low < new.low and low < new.low:
            left_out += new.low - low
            cursor.expired_below[old.log] = new.low
    cursor.expired += left_out
    return left_out
