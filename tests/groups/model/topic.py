"""The part of a topic that one server holds, with the group, if that is here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from tests.groups.model.group import Group, MemberRow, Part, Span, cut, larger, raised, view
from tests.groups.model.messages import Position, Record
from tests.groups.model.rules import Rules

PARTS: Final = 3


class Topic:
    """Logs, history and a group.

    The model keeps every record in memory; `low` has the first offset of each log that retention has kept.
    """

    def __init__(self, log: str) -> None:
        self.open = log
        self.logs: dict[str, list[Record]] = {log: []}
        self.last: dict[str, int] = {}
        self.history = [Span(log, 1)]
        self.low = {log: 1}
        self.group: Group | None = None

    @property
    def end(self) -> int:
        return len(self.logs[self.open]) + 1

    @property
    def own(self) -> Group:
        """The group, where it is known to be here."""
        assert self.group is not None
        return self.group

    def append(self, record: Record) -> None:
        self.logs[self.open].append(record)
        self.last[record.publisher] = record.counter

    def knows(self, position: Position) -> bool:
        return position[1] <= len(self.logs.get(position[0], ()))

    def record(self, position: Position) -> Record:
        return self.logs[position[0]][position[1] - 1]

    def has_body(self, position: Position) -> bool:
        """Return whether retention has kept the message, or a copy is there."""
        return position[1] >= self.low[position[0]] or position in self.own.copies

    def part_of(self, position: Position) -> int:
        return self.record(position).key % PARTS if self.own.keyed else 0

    def walk(self, spans: Iterable[Span], part: int | None) -> Iterator[Position]:
        """Yield the positions of the spans, of one part if it is named."""
        for span in spans:
            log = self.logs[span.log]
            for offset in range(span.low, span.high or len(log) + 1):
                record = log[offset - 1]
                if not span.hides(record) and (part is None or record.key % PARTS == part):
                    yield span.log, offset

    # The group

    def begin(self, number: int, keyed: bool, earliest: bool) -> Group:
        """Make the group, at the history's start or end."""
        spans = [Span(self.open, self.end)]
        if earliest:
            spans = raised(self.history, self.low)
        self.group = Group(number, [Part(list(spans)) for _ in range(PARTS if keyed else 1)])
        return self.group

    def waiting(self, part: int) -> Iterator[Position]:
        """Yield all that waits in a part, delayed messages too."""
        own = self.own.parts[part]
        return chain(own.returned, self.walk(own.spans, part if self.own.keyed else None))

    def front(self, part: int, limit: int, now: int, rules: Rules) -> list[Position]:
        """Return the first messages of a part that may be delivered now."""
        return list(islice(self._due(part, now, rules), limit))

    def _due(self, part: int, now: int, rules: Rules) -> Iterator[Position]:
        for position in self.waiting(part):
            if self.own.delayed.get(position, 0) > now and rules["later"]:
                if self.own.keyed and rules["behind"]:
                    return
                continue
            yield position

    def waits(self, position: Position) -> bool:
        if not self.knows(position):
            return False
        record, own = self.record(position), self.own.parts[self.part_of(position)]
        return position in own.returned or any(span.holds(position) and not span.hides(record) for span in own.spans)

    def take(self, position: Position) -> bool:
        """Take a message out of those that wait; False if it does not wait."""
        index = self.part_of(position)
        own = self.own.parts[index]
        if position in own.returned:
            own.returned.remove(position)
            return True
        record = self.record(position)
        for n, span in enumerate(own.spans):
            if span.holds(position) and not span.hides(record):
                before = [*own.spans[:n], replace(span, high=position[1])]
                passed = list(self.walk(before, index if self.own.keyed else None))
                for place in (*passed, position):
                    self.own.order[place] = len(self.own.order)
                own.spans = [replace(span, low=position[1] + 1), *own.spans[n + 1 :]]
                own.returned += passed
                return True
        return False

    def give_back(self, position: Position) -> None:
        own = self.own.parts[self.part_of(position)]
        if position not in own.returned:
            own.returned.append(position)
            own.returned.sort(key=self.own.order.__getitem__)

    def finish(self, position: Position, row: MemberRow, rules: Rules) -> None:
        """Settle a message as done: a fact, whoever holds it."""
        if not self.knows(position):
            return
        group = self.own
        group.done.add(position)
        for other in group.members.values():
            if position in other.held and (rules["facts"] or other is row):
                del other.held[position]
        if rules["facts"]:
            self.take(position)
            group.dead.pop(position, None)
            group.doubtful.discard(position)
            group.delayed.pop(position, None)
            group.copies.pop(position, None)

    # Retention

    def retain(self, rules: Rules) -> None:
        """Let go of each log up to the first message that something needs; the server is the sole owner."""
        needed: set[Position] = set()
        group = self.group
        if group is not None and not group.ended:
            spans = {position for n, own in enumerate(group.parts) for position in self._ahead(own.spans, n)}
            returned = {position for own in group.parts for position in own.returned}
            needed = spans | ((returned | set(group.claimed())) if rules["held"] else set())
            needed -= group.copies.keys()
            if not rules["letters"]:
                needed |= group.dead.keys()
        for log, records in self.logs.items():
            offsets = [offset for name, offset in needed if name == log]
            self.low[log] = max(self.low[log], min(offsets, default=len(records) + 1))

    def _ahead(self, spans: Sequence[Span], part: int) -> Iterator[Position]:
        return self.walk(spans, part if self.own.keyed else None)

    # Merging

    def merge(self, other: Topic, rules: Rules) -> None:
        """Merge `other`, which is frozen, after the own log."""
        ours, theirs = dict(self.last), dict(other.last)
        own = cut(self.history, self.open, self.end)
        foreign = cut(other.history, other.open, other.end)
        tail = Span(self.open, self.end)
        mine, its = self.group, other.group
        if mine is not None:
            for part in mine.parts:
                rest = view(raised(foreign, other.low), ours if rules["watermark"] else {})
                part.spans = [*cut(part.spans, self.open, self.end), *rest, tail]
        if its is not None:
            for part in its.parts:
                rest = view(raised(own, self.low), theirs if rules["watermark"] else {})
                part.spans = [*cut(part.spans, other.open, other.end), *rest, tail]
        self.history = [*own, *view(foreign, ours), tail]
        self.logs |= other.logs
        self.low |= other.low
        self.last = larger(ours, theirs)
        if its is not None and (mine is None or (its.number > mine.number) == rules["highest"]):
            self.group = its
            self._lose_on_the_way(its, rules)

    def _lose_on_the_way(self, group: Group, rules: Rules) -> None:
        for row in group.members.values():
            if not rules["travel"]:
                for position in list(row.held):
                    del row.held[position]
                    self.give_back(position)
            if not rules["numbers"]:
                row.number = 0
        if not rules["retries"]:
            for part in group.parts:
                part.returned = [position for position in part.returned if position not in group.delayed]
