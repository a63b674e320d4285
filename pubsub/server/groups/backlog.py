"""The waiting records of a group: the spans of each part, and the copies that wait (docs/explanation/groups.md).

A claim takes a range out of the spans, in the middle too. A returned range comes back to its place in the order of
the group. It joins the spans beside it, so a group with everything given back has as few spans as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from pubsub.server.topic.group import HELD, WAITING, Group, common, place
from pubsub.server.topic.group_parts import wait
from pubsub.server.topic.group_rows import CopyChanged, CopyGone, CopyRow
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic

_END: Final = float("inf")

Offsets = list[tuple[int, int]]


def without(spans: Iterable[Span], log: str, low: int, high: int) -> tuple[tuple[Span, ...], Offsets]:
    """Return the spans without offsets [low, high) of a log, and the offsets that were in them."""
    rest: list[Span] = []
    taken: Offsets = []
    for span in spans:
        stop = _END if span.high is None else span.high
        if span.log != log or span.low >= high or stop <= low:
            rest.append(span)
            continue
        first, last = max(span.low, low), int(min(stop, high))
        taken.append((first, last))
        if span.low < first:
            rest.append(replace(span, high=first))
        if last < stop:
            rest.append(span.from_offset(last))
    return tuple(rest), taken


def with_range(spans: tuple[Span, ...], order: tuple[Span, ...], log: str, low: int, high: int) -> tuple[Span, ...]:
    """Return the spans with offsets [low, high) of a log at their place; none of them is in the spans.

    A span beside the range takes it in: the records left that span, so it leaves none of them out.
    """
    mine = place(order, log, low)
    index = next((i for i, span in enumerate(spans) if place(order, span.log, span.low) > mine), len(spans))
    before = spans[index - 1] if index else None
    behind = spans[index] if index < len(spans) else None
    new = Span(log, low, high)
    first, last = index, index
    if behind is not None and behind.log == log and behind.low == high and _same(order, log, low, high):
        new, last = behind.from_offset(low), index + 1
    if before is not None and before.log == log and before.high == low and _same(order, log, low - 1, low):
        first = index - 1
        if last == index:
            new = replace(before, high=high)
        elif before.watermark == new.watermark and before.since == new.since:
            new = new.from_offset(before.low)
        else:
            first = index
    return (*spans[:first], new, *spans[last:])


def _same(order: tuple[Span, ...], log: str, one: int, other: int) -> bool:
    """Return True if two offsets of a log are in the same span of the order."""
    return place(order, log, one)[0] == place(order, log, other)[0]


class Backlog:
    """The waiting records of one group.

    Args:
        topic: notes the changes.
    """

    def __init__(self, topic: Topic, group: Group) -> None:
        self._topic, self._group = topic, group

    def spans(self, part: int) -> tuple[Span, ...]:
        return self._topic.subscriptions[self._group.key(part)].cursor.backlog

    def _set(self, part: int, spans: tuple[Span, ...]) -> None:
        wait(self._topic, self._group.key(part), spans)

    def waits(self, part: int, log: str, offset: int) -> bool:
        """Return True if a record waits; one that a span leaves out counts too."""
        copy = self._group.copies.get((log, offset))
        if copy is not None:
            return copy.state == WAITING and copy.part == part
        return any(span.log == log and span.holds(offset) for span in self.spans(part))

    def take(self, part: int, log: str, low: int, high: int) -> Offsets:
        """Take offsets [low, high) out of the waiting records; return those that waited."""
        spans, taken = without(self.spans(part), log, low, high)
        if taken:
            self._set(part, spans)
        for a, b in common(self._group.copied.get((part, log)), low, high):
            for offset in range(a, b):
                if self._group.copies[log, offset].state == WAITING:
                    self._change_copy(self._group.copies[log, offset], HELD)
                    taken.append((offset, offset + 1))
        return taken

    def pass_over(self, part: int, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Drop ranges in which nothing is to be handed out."""
        before = spans = self.spans(part)
        for log, low, high in ranges:
            spans, _ = without(spans, log, low, high)
        if spans != before:
            self._topic.pass_over(self._group.key(part), spans)

    def give_back(self, part: int, log: str, low: int, high: int) -> None:
        """Return offsets [low, high) to the waiting records."""
        group = self._group
        place = low
        for a, b in [*common(group.copied.get((part, log)), low, high), (high, high)]:
            if place < a and log in self._topic.logs:
                for first, stop in group.segments(log, place, a):
                    self._set(part, with_range(self.spans(part), group.row.order, log, first, stop))
            for offset in range(a, b):
                if group.copies[log, offset].state == HELD:
                    self._change_copy(group.copies[log, offset], WAITING)
            place = b

    def finish(self, part: int, log: str, low: int, high: int) -> Offsets:
        """Drop offsets [low, high), which are done, from the spans and the copies; return those that were there."""
        group = self._group
        spans, taken = without(self.spans(part), log, low, high)
        if taken:
            self._set(part, spans)
        for a, b in common(group.copied.get((part, log)), low, high):
            for offset in range(a, b):
                self.drop_copy(log, offset)
                taken.append((offset, offset + 1))
        return taken

    # Copies

    def _change_copy(self, row: CopyRow, state: int) -> None:
        self.set_copy(replace(row, state=state))

    def set_copy(self, row: CopyRow) -> None:
        """Replace the row of a copy."""
        self._group.keep_copy(row)
        self._topic.dirty.row(self._topic.name, CopyChanged(self._topic.number, self._group.name, row))

    def drop_copy(self, log: str, offset: int) -> None:
        """Remove a copy."""
        if self._group.drop_copy((log, offset)) is not None:
            self._topic.dirty.row(self._topic.name, CopyGone(self._topic.number, self._group.name, log, offset))
