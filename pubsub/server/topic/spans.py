"""Spans: the ranges of logs that a subscriber is still to receive (docs/explanation/logs.md, *Spans*).

Subscribing makes one span [end, infinity) on the open log, and acknowledging raises its low end. So a million waiting
messages cost one range. After a merge a subscriber has several spans, in the order in which it receives them. A span
into the other server's log leaves out two kinds of records. It leaves out records that the subscriber's own log held
already (`watermark`, by publisher and counter). It leaves out records put before the subscription (`since`, by
timestamp). A topic's history is spans too, over all records that the topic holds.

The rules are those of docs/explanation/continuing.md, C6; docs/explanation/logs.md, L2 and L4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.names import HEX, Position

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
LogId = Annotated[str, Meta(pattern=rf"\A{HEX}\Z")]

ALWAYS: Final = 0
"""The `since` of a span that leaves no record out by timestamp."""


class Span(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Offsets [low, high) of a log.

    Attributes:
        log: the log's ID.
        low: the first offset.
        high: one above the last; None: it grows with the log.
        watermark: number of a stored copy of `last`; records with counters up to it are left out. 0: none.
        since: records with timestamps up to it are left out (microseconds since 1970).
        doubtful: the records may have been handed out to another state directory of the client, without an
            acknowledgement.
    """

    log: LogId
    low: Number
    high: Number | None = None
    watermark: Number = 0
    since: Number = ALWAYS
    doubtful: bool = False

    def holds(self, offset: int) -> bool:
        return self.low <= offset and (self.high is None or offset < self.high)

    def from_offset(self, low: int) -> Span:
        return replace(self, low=low)


def find(spans: Sequence[Span], position: Position) -> int | None:
    """Return the index of the span that holds a position, or None."""
    for index, span in enumerate(spans):
        if span.log == position[0] and span.holds(position[1]):
            return index
    return None


def after(spans: Sequence[Span], position: Position) -> tuple[Span, ...] | None:
    """Return the spans after `position`, or None if no span holds it.

    A used-up span is dropped, unless it can still grow.
    """
    index = find(spans, position)
    if index is None:
        return None
    span = spans[index].from_offset(position[1] + 1)
    rest = tuple(spans[index + 1 :])
    return rest if span.high is not None and span.low >= span.high else (span, *rest)


def marked(spans: Sequence[Span], handed: Position | None) -> tuple[Span, ...]:
    """Return the spans with all records up to `handed` marked as doubtful; unchanged if no span holds it.

    Neighbours that differ in no other field become one, so that a subscription that is continued again and again does
    not grow.
    """
    index = None if handed is None else find(spans, handed)
    if handed is None or index is None:
        return tuple(spans)
    span, stop = spans[index], handed[1] + 1
    out: list[Span] = []
    for one in (*spans[:index], replace(span, high=stop)):
        one = replace(one, doubtful=True)  # noqa: PLW2901 - the same span, marked
        if out and out[-1].high == one.low and replace(out[-1], low=one.low, high=one.high) == one:
            one = replace(out.pop(), high=one.high)  # noqa: PLW2901 - joined with the span before
        out.append(one)
    rest = () if span.high is not None and stop >= span.high else (span.from_offset(stop),)
    return (*out, *rest, *spans[index + 1 :])


def row_of(span: Span) -> tuple[str | int | None, ...]:
    """Return a span as a row of a store, or of the first form of commits and chunks; only a set mark is written."""
    row = (span.log, span.low, span.high, span.watermark, span.since)
    return (*row, 1) if span.doubtful else row


def read_rows(rows: Any) -> list[tuple[Any, ...]]:
    """Return the fields of spans from the rows that `row_of` made; their types are not checked.

    Raises:
        ValueError, TypeError: the rows are something else.
    """
    out = []
    for log, low, high, watermark, since, *mark in rows:
        if mark not in ([], [1]):
            raise ValueError("not a span")
        out.append((log, low, high, watermark, since, bool(mark)))
    return out


def cut(spans: Iterable[Span], log: str, end: int) -> tuple[Span, ...]:
    """Return the spans with the growing one of `log` ended at `end`; empty spans are dropped."""
    closed = [replace(span, high=end) if span.log == log and span.high is None else span for span in spans]
    return tuple(span for span in closed if span.high is None or span.low < span.high)


def floors(holders: Iterable[Iterable[Span]], ends: Mapping[str, int]) -> dict[str, int]:
    """Return for each log the offset below which no span holds a record.

    Args:
        holders: the spans of each subscriber.
        ends: each log's end, which is the result if no span holds a record of it.
    """
    lowest = dict(ends)
    for spans in holders:
        for span in spans:
            if span.low < lowest.get(span.log, 0):
                lowest[span.log] = span.low
    return lowest
