"""What travels when a topic moves: chunks, each small, self-describing and checked when it is read.

    one line of JSON, then bytes

The first chunk describes the topic: its logs, its history, what it merged. Then come the batches of each log, as they
are stored, and what sinks have staged; then the copies of `last` that spans refer to, the last counters, the
subscriptions. What a topic holds does not change while it is given, so the same topic always makes the same chunks.
Publishers travel by name: each store has its own numbers for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from pubsub.base.limits import BATCH_BYTES_MAX, NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_hex, is_id
from pubsub.protocol.records import check_publisher
from pubsub.server.topic.consumers import KEY
from pubsub.server.topic.delivery import Batch, BatchReader
from pubsub.server.topic.description import Description, describe
from pubsub.server.topic.spans import Span, row_of
from pubsub.server.topic.stages import Stage
from pubsub.server.topic.subscription import Subscription, SubscriptionRow, subscription_of
from pubsub.server.topic.topic import Log, Topic

CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of batches after which a chunk is full; one batch always fits."""

CHUNK_BATCHES: Final = 2_000
CHUNK_ITEMS: Final = 5_000
"""Counters in one chunk, or subscriptions and ranges of their backlogs."""

LINE_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class Moving(Description):
    """A topic as it arrives: what its chunks said so far. Its logs have numbers of the receiving store.

    Attributes:
        size: bytes of the chunks that said it.
    """

    size: int = 0


@dataclass(slots=True)
class ArrivedBatches:
    """Batches of one log that arrived: (batch, publisher's name)."""

    log: str
    batches: list[tuple[Batch, str]]


@dataclass(slots=True)
class ArrivedRows:
    """Rows of a sink's stage that arrived.

    Attributes:
        publisher: its name.
        rows: first, count, checksum and body of each piece.
    """

    publisher: str
    batch: int
    attempt: str
    heard: int
    rows: list[tuple[int, int, int, bytes]]


def chunks(topic: Topic, reader: BatchReader, publishers: Sequence[str]) -> Iterator[bytes]:
    """Every chunk of a frozen topic, in order.

    Args:
        publishers: names, by number.
    """
    said = describe(topic, publishers)
    yield _pack({kind.wire: kind.write(getattr(said, name)) for name, kind in _HEAD.items()})
    for log in topic.logs.values():
        yield from _batch_chunks(log, reader, publishers)
    for stage in topic.stages.values():
        yield from _stage_chunks(stage, reader, publishers)
    for number, counters in said.watermarks.items():
        for items in _pieces(counters.items()):
            yield _pack({"skip": number, "counters": items})
    for items in _pieces(said.last.items()):
        yield _pack({"last": items})
    for rows in _subscription_pieces(said.subscriptions.items()):
        yield _pack({"entries": rows})


def _subscription_row(name: str, subscription: Subscription) -> list[Any]:
    row = subscription.row()
    return [name, row.number, row.opening, row.on, row.since, *row.acknowledged, _span_rows(row.backlog)]


def _span_rows(spans: Iterable[Span]) -> list[tuple[Any, ...]]:
    return [row_of(span) for span in spans]


def _log_rows(logs: Mapping[str, Log]) -> list[list[Any]]:
    return [[log.id, log.low, log.end, log.total, log.unknown] for log in logs.values()]


def _pieces(items: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    rest = iter(items)
    while piece := list(islice(rest, CHUNK_ITEMS)):
        yield piece


def _subscription_pieces(subscriptions: Iterable[tuple[str, Subscription]]) -> Iterator[list[list[Any]]]:
    rows: list[list[Any]] = []
    items = 0
    for name, subscription in subscriptions:
        rows.append(_subscription_row(name, subscription))
        items += 1 + len(subscription.cursor.backlog)
        if items >= CHUNK_ITEMS:
            yield rows
            rows, items = [], 0
    if rows:
        yield rows


def _batch_chunks(log: Log, reader: BatchReader, publishers: Sequence[str]) -> Iterator[bytes]:
    rows: list[list[Any]] = []
    bodies: list[Buffer] = []
    size = 0
    place = log.low
    while place < log.end:
        before = place
        for batch in reader.batches(log.number, place, log.end):
            place = batch.offset + batch.count
            body = batch.body
            rows.append(
                [
                    batch.offset,
                    batch.count,
                    publishers[batch.publisher],
                    batch.counter,
                    batch.stamp,
                    batch.checksum,
                    batch.total,
                    -1 if body is None else len(body),
                ]
            )
            if body is not None:
                bodies.append(body)
                size += len(body)
            if size >= CHUNK_BYTES or len(rows) >= CHUNK_BATCHES:
                break  # The reader must not be left open while the chunk travels.
        if rows:
            yield _pack({"log": log.id, "rows": rows}, bodies)
            rows, bodies, size = [], [], 0
        if place == before:
            return


def _stage_chunks(stage: Stage, reader: BatchReader, publishers: Sequence[str]) -> Iterator[bytes]:
    head = [publishers[stage.publisher], stage.batch, stage.attempt, stage.heard]
    rows: list[list[int]] = []
    bodies: list[Buffer] = []
    size = 0
    for piece in stage.pieces:
        rows.append([piece.first, piece.count, piece.checksum, piece.size])
        bodies.append(reader.staged(piece.id))
        size += piece.size
        if size >= CHUNK_BYTES or len(rows) >= CHUNK_BATCHES:
            yield _pack({"stage": head, "rows": rows}, bodies)
            rows, bodies, size = [], [], 0
    if rows:
        yield _pack({"stage": head, "rows": rows}, bodies)


def _pack(head: dict[str, Any], bodies: Iterable[Buffer] = ()) -> bytes:
    line = json.dumps(head, separators=(",", ":")).encode("ascii")
    return b"".join((line, b"\n", *bodies))


def read(chunk: Buffer, moving: Moving, number: Callable[[], int]) -> ArrivedBatches | ArrivedRows | None:
    """Take in one chunk.

    Args:
        moving: what arrived before; it grows.
        number: gives a new log number of this store.

    Returns:
        The batches in it, or the staged rows, where it holds such.

    Raises:
        DecodeError: it is not a chunk that can follow.
    """
    raw = bytes(chunk)
    line, newline, rest = raw.partition(b"\n")
    if not newline or len(line) > LINE_BYTES_MAX:
        raise DecodeError("chunk without its line")
    try:
        head = json.loads(line)
        if "open" in head:
            _read_description(head, moving, number)
        elif "log" in head:
            return _read_batches(head, rest, moving)
        elif "stage" in head:
            return _read_stage(head, rest)
        elif "skip" in head:
            moving.watermarks.setdefault(_number(head["skip"]), {}).update(_counters(head["counters"]))
        elif "last" in head:
            moving.last.update(_counters(head["last"]))
        elif "entries" in head:
            moving.subscriptions.update(_read_subscription(row, moving) for row in head["entries"])
        else:
            raise DecodeError("chunk of an unknown kind")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DecodeError(f"chunk cannot be read: {type(error).__name__}") from None
    moving.size += len(raw)
    return None


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ValueError
    return value


def _log_id(value: Any) -> str:
    if type(value) is not str or not is_hex(value):
        raise ValueError
    return value


def _server_id(value: Any) -> str:
    if type(value) is not str or not is_id(value):
        raise ValueError
    return value


def _read_span(row: Any) -> Span:
    log, low, high, watermark, since, *mark = row
    if mark not in ([], [1]):
        raise ValueError
    stop = None if high is None else _number(high)
    return Span(_log_id(log), _number(low), stop, _number(watermark), _number(since), bool(mark))


def _read_spans(rows: Any) -> tuple[Span, ...]:
    return tuple(_read_span(row) for row in rows)


def _read_logs(rows: Any) -> dict[str, Log]:
    """Logs that have no numbers of this store yet."""
    return {_log_id(log): Log(0, log, *map(_number, (low, *rest))) for log, low, *rest in rows}


def _read_log_ids(rows: Any) -> frozenset[str]:
    return frozenset(_log_id(log) for log in rows)


class _Kind(NamedTuple):
    """How a field of a description is called in a chunk, written and read."""

    wire: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


_HEAD: Final = {
    "open": _Kind("open", str, _log_id),
    "logs": _Kind("logs", _log_rows, _read_logs),
    "history": _Kind("spine", _span_rows, _read_spans),
    "merged": _Kind("absorbed", sorted, _read_log_ids),
    "ended": _Kind("ended", sorted, _read_log_ids),
    "contested": _Kind("rivals", dict, lambda rows: {_log_id(log): _server_id(server) for log, server in rows.items()}),
}
"""The fields of a description that the first chunk has; the others may be long, and come in pieces."""


def _read_description(head: Mapping[str, Any], moving: Moving, number: Callable[[], int]) -> None:
    if moving.open:
        raise DecodeError("a topic is described twice")
    said = {name: kind.read(head[kind.wire]) for name, kind in _HEAD.items()}
    if said["open"] not in said["logs"]:
        raise DecodeError("a topic without its open log")
    for name, value in said.items():
        setattr(moving, name, value)
    moving.logs = {name: replace(log, number=number()) for name, log in moving.logs.items()}


def _counters(rows: Any) -> dict[str, int]:
    return {check_publisher(name): _number(counter) for name, counter in rows}


def _read_subscription(row: Any, moving: Moving) -> tuple[str, Subscription]:
    name, number, opening, on, since, log, acknowledged, spans = row
    if not is_id(name.removeprefix(KEY)):
        raise ValueError
    read = SubscriptionRow(
        _number(number),
        _number(opening),
        bool(on),
        _number(since),
        (_log_id(log), _number(acknowledged)),
        _read_spans(spans),
    )
    if any(span.log not in moving.logs for span in read.backlog):
        raise DecodeError("a subscription points into a log that did not come along")
    return name, subscription_of(name, read)


def _read_batches(head: Mapping[str, Any], rest: bytes, moving: Moving) -> ArrivedBatches:
    log = moving.logs[head["log"]]
    piece = ArrivedBatches(log.id, [])
    place = 0
    for offset, count, publisher, counter, stamp, checksum, total, size in head["rows"]:
        body = None
        if size != -1:
            if _number(size) > BATCH_BYTES_MAX or place + size > len(rest):
                raise DecodeError("a batch is longer than its chunk")
            body = rest[place : place + size]
            place += size
        if not (log.low <= _number(offset) and offset + _number(count) <= log.end):
            raise DecodeError("a batch outside its log")
        batch = Batch(offset, count, 0, _number(counter), _number(stamp), _number(checksum), _number(total), body)
        piece.batches.append((batch, check_publisher(publisher)))
    if place != len(rest):
        raise DecodeError("bytes behind the last batch of a chunk")
    return piece


def _read_stage(head: Mapping[str, Any], rest: bytes) -> ArrivedRows:
    publisher, batch, attempt, heard = head["stage"]
    if type(attempt) is not str or not is_id(attempt):
        raise ValueError
    staged = ArrivedRows(check_publisher(publisher), _number(batch), attempt, _number(heard), [])
    place = 0
    for first, count, checksum, size in head["rows"]:
        if not 0 <= _number(size) <= BATCH_BYTES_MAX or place + size > len(rest):
            raise DecodeError("staged rows are longer than their chunk")
        staged.rows.append((_number(first), _number(count), _number(checksum), rest[place : place + size]))
        place += size
    if place != len(rest):
        raise DecodeError("bytes behind the last staged rows of a chunk")
    return staged
