"""The part of a topic that one server holds: logs, history, subscriptions, and the rows that are not there any more.

The model keeps every record in memory, also those that the server has let go of, so that a check can compare
them with those that a reader received. `low`, `floors`, `bare` and `compacted` define the records that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

SKEW: Final = 20
"""Bound on the difference of two servers' clocks, in steps."""

ALWAYS: Final = -1_000_000
"""The `since` that leaves nothing out."""

Position = tuple[str, int]
Content = tuple[str, int]


@dataclass(frozen=True)
class Record:
    """One message; `content` identifies it, `taken` is the step at which the server stored it."""

    publisher: str
    counter: int
    content: Content
    stamp: int
    taken: int

    @property
    def size(self) -> int:
        return 1 + self.content[1] % 4


@dataclass(frozen=True)
class Span:
    """Offsets [low, high) of a log, without counters up to `watermark` and stamps up to `since`."""

    log: str
    low: int
    high: int | None = None
    watermark: Mapping[str, int] = field(default_factory=dict)
    since: int = ALWAYS

    def holds(self, position: Position) -> bool:
        return self.log == position[0] and self.low <= position[1] and (self.high is None or position[1] < self.high)

    def hides(self, record: Record) -> bool:
        return record.counter <= self.watermark.get(record.publisher, 0) or record.stamp <= self.since

    def later(self, since: int) -> Span:
        return replace(self, since=max(self.since, since))


@dataclass
class Subscription:
    """The records that a subscriber is still to receive.

    Attributes:
        since: records of the other server with a stamp up to it are left out by a merge.
    """

    number: int
    on: bool
    since: int
    backlog: list[Span]
    acknowledged: Position


Item = tuple[Position, Record | None]
"""A record at its position; None: the offset is reported as lost."""


def cut(spans: Iterable[Span], log: str, end: int) -> list[Span]:
    """Return the spans with the growing one of `log` ended."""
    closed = [replace(span, high=end) if span.log == log and span.high is None else span for span in spans]
    return [span for span in closed if span.high is None or span.low < span.high]


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def view(history: Iterable[Span], watermark: Mapping[str, int], since: int) -> list[Span]:
    """Restrict another server's history for a reader that has all records up to `watermark`."""
    return [replace(span.later(since), watermark=larger(span.watermark, watermark)) for span in history]


def is_subsequence(some: Iterable[Position], of: Iterable[Position]) -> bool:
    rest = iter(of)
    return all(one in rest for one in some)


class Topic:
    """The part of the topic that one server holds.

    Attributes:
        history: spans over all records that were ever held, in the one order of all readers.
        low: by log, the first offset with a row.
        floors: by log, the first offset that a new reader receives.
        bare: positions with a row and without a body.
        compacted: positions that compaction has removed.
        gone: the tombstones among these, in the order in which they went.
        tokens: tokens of the histories that this one continues; `token` is its own.
    """

    def __init__(self, log: str) -> None:
        self.open, self.history = log, [Span(log, 1)]
        self.logs: dict[str, list[Record]] = {log: []}
        self.last: dict[str, int] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.low, self.floors = {log: 1}, {log: 1}
        self.bare: set[Position] = set()
        self.compacted: set[Position] = set()
        self.gone: list[Position] = []
        self.token, self.tokens = log, {log}

    @property
    def end(self) -> int:
        """One above the last offset of the open log."""
        return len(self.logs[self.open]) + 1

    @property
    def has_let_go(self) -> bool:
        return bool(self.compacted) or any(low > 1 for low in self.low.values())

    def append(self, publisher: str, counter: int, content: Content, stamp: int, taken: int) -> int:
        """Store a record and return its stamp, which never falls along a log."""
        own = self.logs[self.open]
        stamp = max(stamp, own[-1].stamp if own else stamp)
        own.append(Record(publisher, counter, content, stamp, taken))
        self.last[publisher] = counter
        return stamp

    def record(self, position: Position) -> Record:
        return self.logs[position[0]][position[1] - 1]

    def positions(self, span: Span) -> list[Position]:
        return [(span.log, offset) for offset in range(span.low, span.high or len(self.logs[span.log]) + 1)]

    # Reading

    def walk(self, spans: Sequence[Span], *, reports: bool = True) -> Iterator[Item]:
        """Yield the records of the spans.

        Args:
            reports: bare rows, and offsets without a row, are reported as lost.
        """
        for span in spans:
            for position in self.positions(span):
                record = self.record(position)
                if position[1] < self.low[span.log]:
                    if reports:
                        yield position, None
                elif span.hides(record) or position in self.compacted:
                    continue
                elif position not in self.bare:
                    yield position, record
                elif reports:
                    yield position, None

    def beginning(self, *, at_floor: bool = True) -> list[Span]:
        """Return the spans of a reader that begins at the history's start."""
        lows = self.floors if at_floor else self.low
        return _raised(self.history, lows)

    def shown(self) -> list[tuple[Position, Record]]:
        """Return the history as a new reader receives it, in its order."""
        return [(position, record) for position, record in self.walk(self.beginning()) if record is not None]

    def ever_shown(self) -> list[tuple[Position, Record]]:
        """Return the history as if nothing had been let go of."""
        pairs = [(position, self.record(position), span) for span in self.history for position in self.positions(span)]
        return [(position, record) for position, record, span in pairs if not span.hides(record)]

    def place_of(self, position: Position) -> tuple[int, int]:
        """Return a position's place in the history; a log that continues after another has two spans."""
        return next((i for i, span in enumerate(self.history) if span.holds(position)), -1), position[1]

    # Merging

    def merge(self, other: Topic, rules: Mapping[str, bool]) -> str:
        """Merge `other`, which is frozen; return an objection to the new order, or ""."""
        mine, theirs = [p for p, _ in self.shown()], [p for p, _ in other.shown()]
        end, ours, its = self.end, dict(self.last), dict(other.last)
        own, foreign = cut(self.history, self.open, end), cut(other.history, other.open, other.end)
        second = other.has_let_go if rules["elder"] else False
        second = second or not (mine or self.has_let_go)
        for name in sorted(self.subscriptions.keys() | other.subscriptions.keys()):
            self.subscriptions[name] = self._merged(name, other, ours, its, own, foreign)
        tail = Span(self.open, end)
        if second:
            self.history = [*foreign, *view(own, its, ALWAYS), tail]
            self.tokens, mine, theirs = set(other.tokens), theirs, mine
        else:
            self.history = [*own, *view(foreign, ours, ALWAYS), tail]
        self.last = larger(self.last, other.last)
        for name in ("logs", "low", "floors", "bare", "compacted"):
            setattr(self, name, getattr(self, name) | getattr(other, name))
        self.gone += other.gone
        self.token = f"{self.token}+{other.token}"
        self.tokens.add(self.token)
        now = [position for position, _ in self.shown()]
        kept = is_subsequence([position for position in theirs if position in set(now)], now)
        return "" if now[: len(mine)] == mine and kept else "order of the history changed"

    def _merged(
        self,
        name: str,
        other: Topic,
        ours: Mapping[str, int],
        its: Mapping[str, int],
        own: Sequence[Span],
        foreign: Sequence[Span],
    ) -> Subscription:
        here, there = self.subscriptions.get(name), other.subscriptions.get(name)
        if here is not None and (there is None or here.number >= there.number):
            chosen, rest = here, cut(here.backlog, self.open, self.end)
            rest += view(_raised(foreign, other.low), ours, here.since)
        else:
            assert there is not None
            chosen, rest = there, cut(there.backlog, other.open, other.end)
            rest += view(_raised(own, self.low), its, there.since)
        chosen.backlog = [*rest, Span(self.open, self.end)] if chosen.on else []
        return chosen


def _raised(spans: Iterable[Span], lows: Mapping[str, int]) -> list[Span]:
    """Return the spans from each log's low offset on; a closed span below it goes."""
    raised = [replace(span, low=max(span.low, lows[span.log])) for span in spans]
    return [span for span in raised if span.high is None or span.low < span.high]
