"""The start of a new subscription: the cursor of a subscription that is made now.

    latest     after all records that are held
    earliest   at the first record that is held
    stamp      the same, without records of an earlier timestamp
    last:N     at the last N records that the history shows
    position   at the record with this position

A start before the end begins in the topic's history, so that two subscriptions receive the same order. A merge may
bring spans from another server (`merge`). The cursor's `since` leaves out the records in them that were put before the
start. Timestamps of two servers compare within the bound on skew, so a start at a position, including the end, allows
for that skew. A start at a timestamp does not, since every record has a timestamp.

The rules are those of docs/explanation/get.md, G15; docs/explanation/numbers.md, N8;
docs/explanation/replay.md, I1; docs/explanation/replay.md, I3; docs/explanation/replay.md, I5;
docs/explanation/replay.md, I6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.names import EARLIEST, LATEST, Position, Start, last_records
from pubsub.protocol.topic_settings import NONE
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delivery import BatchReader, first_with_body
from pubsub.server.topic.last import last
from pubsub.server.topic.places import begun
from pubsub.server.topic.purged import hidden_below
from pubsub.server.topic.ranges import start_of
from pubsub.server.topic.shown import Budget
from pubsub.server.topic.spans import ALWAYS, Span, find
from pubsub.server.topic.topic import Topic

NOT_HELD: Final = "nothing_is_held_at_that_position"
"""Reason of an answer to a start at a position."""


def oldest(topic: Topic | None, reader: BatchReader) -> dict[str, Position | str]:
    """Return the fields of the answer *gone*: the oldest position that is held, the one before it, and the log."""
    if topic is None:
        return {}
    spans = with_bodies(topic, topic.history, reader)
    first = next((span for span in spans if span.high is None or span.low < span.high), spans[-1])
    return {"first": (first.log, first.low), "position": (first.log, first.low - 1), "log": topic.open.id}


def cursor_at(topic: Topic, start: Start, stamp: int, skew: int, reader: BatchReader) -> Cursor | None:
    """Return the cursor of a subscription with this start; None if the topic does not hold that position.

    Args:
        stamp: the server's clock.
        skew: the bound on the difference of two servers' clocks; both in microseconds.
    """
    if start == LATEST:
        return _at_end(topic, stamp, skew)
    if start == EARLIEST:
        found: Cursor | None = _cursor(with_bodies(topic, topic.history, reader), ALWAYS)
    elif isinstance(start, int):
        since = max(0, start - 1)
        spans = with_bodies(topic, topic.history, reader)
        found = _cursor(begun_all(topic, spans, since, reader), since)
    elif isinstance(start, str):
        found = _at_last(topic, last_records(start), stamp, skew, reader)
    else:
        found = _at_record(topic, start, skew, reader)
    if found is not None:
        found.since = max(found.since, stamp - skew - _kept(topic))
    return found


def _kept(topic: Topic) -> int:
    """Return the age beyond which `keep` lets every record go (microseconds); a very large one if no age does.

    A new subscription is not owed such a record, which another holder may have without its bytes.
    """
    ages = [None if amount is None else amount.age for amount in topic.in_force.keep]
    if topic.in_force.keep == (NONE,) or None in ages:
        return NUMBER_MAX
    return max(age for age in ages if age is not None)


def _cursor(spans: tuple[Span, ...], since: int) -> Cursor:
    return Cursor(since, start_of(spans), spans)


def _at_end(topic: Topic, stamp: int, skew: int) -> Cursor:
    return _cursor((Span(topic.open.id, topic.open.end),), max(0, stamp - skew))


def begun_all(topic: Topic, spans: Iterable[Span], since: int, reader: BatchReader) -> tuple[Span, ...]:
    """Return the spans without records that have timestamps up to `since`; empty spans are dropped."""
    begun_ = (begun(topic, span, since, reader) for span in spans)
    return tuple(span for span in begun_ if span.high is None or span.low < span.high)


def _at_last(topic: Topic, records: int, stamp: int, skew: int, reader: BatchReader) -> Cursor:
    spans = with_bodies(topic, topic.history, reader)
    budget = Budget()
    place = last(topic, spans, reader, records, budget)
    if place is None:
        found = _at_end(topic, stamp, skew)
    else:
        since = stamp - skew if place.stamp is None else min(place.stamp - 1, stamp - skew)
        found = _cursor((spans[place.span].from_offset(place.offset), *spans[place.span + 1 :]), max(0, since))
    found.short = budget.left <= 0
    return found


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
    if position[1] < max(first_with_body(reader, log), hidden_below(topic).get(log.id, 0)):
        return None  # The bytes of the record were let go, or it is purged.
    # A batch of this loop is not stored yet, so the timestamp may be that of an earlier batch.
    batch = reader.newest(log.number, log.low, position[1])
    since = ALWAYS if batch is None else max(0, batch[2] - 1 - skew)
    spans = with_bodies(topic, topic.history, reader)
    # Records of another log may have been put later, although they come earlier in the history.
    before = begun_all(topic, (span for span in spans[:index] if span.log != log.id), since, reader)
    later = begun_all(topic, spans[index + 1 :], since, reader)
    return _cursor((*before, spans[index].from_offset(position[1]), *later), since)
