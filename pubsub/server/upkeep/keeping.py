"""The places up to which the settings of a topic let its records go (docs/explanation/retention.md, T14, T15 and T16).

Timestamps and totals rise with the offsets of a log, so each place is found by bisection over the rows of batches. The
result is a prefix of each log. A topic counts bytes and records along its history, over all its logs. A span with a
watermark may hide records that another log of the topic has too. Such a span counts as empty, because otherwise less
would be kept than was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pubsub.protocol.topic_settings import EVER, Amount
from pubsub.server.topic.changes import BatchAppended, BatchPublished, Change
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.places import cut
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic


def released(topic: Topic, amounts: Iterable[Amount | None], stamp: int, reader: BatchReader) -> dict[str, int]:
    """Return for each log the offset below which every one of these amounts lets each record go.

    Args:
        amounts: at least one. None, a default that is not known here, lets nothing go.
        stamp: the present time (microseconds since 1970).

    Raises:
        StoreDamaged: a row cannot be read.
    """
    each = [_released(topic, amount or EVER, stamp, reader) for amount in amounts]
    return {log: min(one[log] for one in each) for log in topic.logs}


def _released(topic: Topic, amount: Amount, stamp: int, reader: BatchReader) -> dict[str, int]:
    parts: list[Mapping[str, int]] = [{log.id: log.low for log in topic.logs.values()}]
    if amount.age is not None:
        oldest = stamp - amount.age
        parts.append({log.id: cut(reader, log, log.end, oldest) for log in topic.logs.values()})
    if amount.records is not None:
        parts.append(_beyond(topic, amount.records, _records, lambda span, log, left: _stop(span, log) - left))
    if amount.size is not None:
        parts.append(
            _beyond(
                topic,
                amount.size,
                lambda span, log: _total(log, _stop(span, log), reader) - _total(log, span.low, reader),
                lambda span, log, left: _with_bytes_after(reader, log, span, left),
            )
        )
    return {log: max(part[log] for part in parts) for log in topic.logs}


def needed(topic: Topic) -> Iterator[tuple[str, str, int, float]]:
    """Yield the ranges that subscribers are still to receive, and members of groups have claimed.

    Each is (key of the subscription, log, low, high).
    """
    for name, subscription in topic.subscriptions.items():
        for span in subscription.cursor.backlog:
            yield name, span.log, span.low, float("inf") if span.high is None else span.high
    for group in topic.groups.values():
        yield from group.needed()


def held_by(topic: Topic, floors: Mapping[str, int], limits: Mapping[str, int]) -> str:
    """Return the reason why records stay although `keep` lets them go: the subscriber that needs them; "" if none stay.

    Args:
        floors: of each log, the offset below which no subscriber needs a record.
        limits: of each log, the offset below which `keep` lets every record go.
    """
    for log in topic.logs:
        floor = floors[log]
        if floor < limits[log]:
            needing = (name for name, its, low, _ in needed(topic) if its == log and low == floor)
            return f"subscriber {min(needing)}"
    return ""


def _stop(span: Span, log: Log) -> int:
    """Return the offset after the stored records of a span."""
    stored = log.end - log.unknown
    return stored if span.high is None else min(span.high, stored)


def _records(span: Span, log: Log) -> int:
    return _stop(span, log) - span.low


def _beyond(
    topic: Topic, amount: int, size: Callable[[Span, Log], int], place: Callable[[Span, Log, int], int]
) -> dict[str, int]:
    """Return for each log the offset below which each record has at least this amount after it in the history.

    Args:
        size: returns the amount in a span.
        place: returns the offset in a span below which at least the given rest of the amount follows in it.
    """
    left = amount
    places: dict[str, int] = {}
    for span, log in _backwards(topic):
        if left <= 0:
            continue
        held = 0 if span.watermark else max(0, size(span, log))
        low = place(span, log, left) if held > left else span.low
        places[span.log] = min(low, places.get(span.log, low))
        left -= held
    return {log.id: places.get(log.id, log.end) for log in topic.logs.values()}


def _backwards(topic: Topic) -> Iterator[tuple[Span, Log]]:
    for span in reversed(topic.history):
        log = topic.logs.get(span.log)
        if log is not None:
            yield span, log


def _total(log: Log, offset: int, reader: BatchReader) -> int:
    """Return the bytes of a log before an offset."""
    before = log.total if offset >= log.end - log.unknown else reader.total_before(log.number, offset)
    return log.total if before is None else before


def _with_bytes_after(reader: BatchReader, log: Log, span: Span, left: int) -> int:
    """Return the last begin of a batch in a span with at least this many bytes of the span from there on."""
    end = _total(log, _stop(span, log), reader)
    low, high, found = span.low, _stop(span, log), span.low
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, span.low, middle)
        if batch is None:
            low = middle + 1
        elif end - batch[3] >= left:
            found, low = batch[0], max(middle + 1, batch[0] + batch[1])
        else:
            high = batch[0]
    return found


def beyond(reader: BatchReader, log: Log, end: int, history: int) -> int:
    """Return the offset from which a log has at most `history` bytes up to `end`."""
    rows = reader.stamps(log.number, end, 1)
    total = rows[0][3] if rows else log.total
    low, high = log.low, end
    while low < high:
        middle = (low + high) // 2
        batch = reader.newest(log.number, log.low, middle)
        if batch is None:
            low = middle + 1
        elif total - batch[3] > history:
            low = max(batch[0] + batch[1], middle + 1)
        else:
            high = batch[0]
    return min(low, end)


def stored_below(topic: Topic, uncommitted: Iterable[Change]) -> dict[str, int]:
    """Return for each log the offset below which its batches are in the store, without those of this loop."""
    ends = {log.number: log.end for log in topic.logs.values()}
    for row in uncommitted:
        if isinstance(row, BatchAppended | BatchPublished) and row.log in ends:
            ends[row.log] = min(ends[row.log], row.offset)
    return {log.id: ends[log.number] for log in topic.logs.values()}
