"""Ranges of positions along legs: what a reader of ranges asks for, and how it is cut for many readers.

A range is (after, until]: behind one position, up to and with another, along a named subscription's legs or along the
spine. Positions order by the legs, not by their numbers. A join only ends growing legs and puts others behind them, so
between two positions that were once told there is always the same, whoever holds the topic by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pubsub.protocol.names import Position, format_position
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.spans import Leg, after, find
from pubsub.server.topic.topic import Log, Topic

KEY = "@"
"""What the key of a named subscription's entry begins with: no client's ID does."""


def start_of(legs: Sequence[Leg]) -> Position:
    """The position that these legs begin behind."""
    return legs[0].log, legs[0].low - 1


def behind(topic: Topic, legs: tuple[Leg, ...], start: Position, position: Position | None) -> tuple[Leg, ...] | None:
    """The legs behind a position, or None where it lies in none of them, or beyond their end.

    Args:
        legs: all of them.
        start: the position that they begin behind, which None stands for too.
    """
    if position is None or position == start:
        return legs
    log = topic.logs.get(position[0])
    if log is None or position[1] >= log.end:
        return None
    return after(legs, position)


def up_to(topic: Topic, legs: tuple[Leg, ...], start: Position, until: Position | None) -> tuple[Leg, ...] | None:
    """The legs up to and with a position; None where it lies in none of them, or beyond their end.

    Args:
        start: the position that the legs begin behind: up to there they are empty.
        until: None: as far as they go today.
    """
    if until is None:
        found = [replace(leg, high=_stop(topic, leg)) for leg in legs]
        return tuple(leg for leg in found if leg.high is not None and leg.low < leg.high)
    if until == start:
        return ()
    index = find(legs, until)
    if index is None or until[1] >= topic.logs[until[0]].end:
        return None
    before = [leg for leg in legs[:index] if leg.low < _stop(topic, leg)]
    return (*before, replace(legs[index], high=until[1] + 1))


def _stop(topic: Topic, leg: Leg) -> int:
    log = topic.logs.get(leg.log)
    end = 0 if log is None else log.end
    return end if leg.high is None else min(leg.high, end)


def plan(topic: Topic, legs: Sequence[Leg], start: Position, reader: BatchReader, bytes_max: int) -> bytes:
    """What a driver needs to know of a range to cut it.

    Args:
        legs: the range, from `up_to`.
        start: the position that it lies behind.
        bytes_max: what `within` is to hold at most; 0: no limit.

    Returns:
        JSON: `latest`, the last position of the range (where it is empty, `start`); `within`, the last up to which it
        has at most `bytes_max` bytes (but one batch); `legs`: [log, first offset, one above the last, bytes].
    """
    rows = [[leg.log, leg.low, leg.high, _bytes(topic.logs[leg.log], leg, reader)] for leg in legs]
    latest = (legs[-1].log, (legs[-1].high or 1) - 1) if legs else start
    within = _within(topic, legs, reader, bytes_max) if bytes_max else None
    facts = {"latest": format_position(latest), "within": format_position(within or latest), "legs": rows}
    return json.dumps(facts, separators=(",", ":")).encode("ascii")


def _totals(log: Log, leg: Leg, reader: BatchReader) -> Iterator[int]:
    """Bytes of the log before the leg begins, and before it ends."""
    for offset in (leg.low, leg.high or log.end):
        total = log.total if offset >= log.end else reader.total_before(log.number, offset)
        yield log.total if total is None else total


def _bytes(log: Log, leg: Leg, reader: BatchReader) -> int:
    first, last = _totals(log, leg, reader)
    return max(0, last - first)


def _within(topic: Topic, legs: Sequence[Leg], reader: BatchReader, bytes_max: int) -> Position | None:
    """The last position up to which the legs hold at most so many bytes; None: they hold no more in all."""
    left = bytes_max
    before: Position | None = None
    for leg in legs:
        log, stop = topic.logs[leg.log], leg.high or 0
        size = _bytes(log, leg, reader)
        if size > left:
            return _cut(log, leg, reader, left) or before or _end_of_first(log, leg, reader)
        left, before = left - size, (leg.log, stop - 1)
    return None


def _cut(log: Log, leg: Leg, reader: BatchReader, left: int) -> Position | None:
    """The end of the last batch up to which a leg holds at most so many bytes; None: not even its first."""
    low, high = leg.low, leg.high or 0
    base = next(_totals(log, leg, reader))
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
    return (leg.log, fitting - 1) if fitting > leg.low else None


def _end_of_first(log: Log, leg: Leg, reader: BatchReader) -> Position:
    """The end of the first batch of a leg: a range is never empty for being too large."""
    rows = reader.newest(log.number, log.low, leg.low)
    stop = leg.high or 0
    return leg.log, (min(stop, rows[0] + rows[1]) if rows and rows[0] + rows[1] > leg.low else leg.low + 1) - 1
