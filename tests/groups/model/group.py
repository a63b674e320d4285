"""The durable state of a group at its holder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.groups.model.messages import MemberID, Position, Record


@dataclass(frozen=True)
class Span:
    """Offsets [low, high) of a log, without counters up to the watermark; without `high` it grows."""

    log: str
    low: int
    high: int | None = None
    watermark: Mapping[str, int] = field(default_factory=dict)

    def holds(self, position: Position) -> bool:
        return self.log == position[0] and self.low <= position[1] and (self.high is None or position[1] < self.high)

    def hides(self, record: Record) -> bool:
        return record.counter <= self.watermark.get(record.publisher, 0)


@dataclass
class Part:
    """A part of a keyed group, or all of a shared one: `returned` waits in front of the spans."""

    spans: list[Span]
    returned: list[Position] = field(default_factory=list)


@dataclass
class MemberRow:
    """A member at the server: its highest number, what it has claimed, each with its part, and its database."""

    number: int = 0
    held: dict[Position, int] = field(default_factory=dict)
    database: int = 0


@dataclass
class Group:
    """One group.

    Attributes:
        number: of the SUBSCRIBE that made it, or of its end.
        order: the place of each message that was taken out of a span; those that go back are sorted by it.
        begun: messages with an attempt, and so not delivered for the first time.
        delayed: the not-before times.
        copies: messages that are copied out of the log.
        done: all that was told as done; for the checks alone.
    """

    number: int
    parts: list[Part]
    ended: bool = False
    suspended: bool = False
    members: dict[MemberID, MemberRow] = field(default_factory=dict)
    order: dict[Position, int] = field(default_factory=dict)
    attempts: Counter[Position] = field(default_factory=Counter)
    losses: Counter[Position] = field(default_factory=Counter)
    begun: set[Position] = field(default_factory=set)
    dead: dict[Position, int] = field(default_factory=dict)
    doubtful: set[Position] = field(default_factory=set)
    delayed: dict[Position, int] = field(default_factory=dict)
    copies: dict[Position, Record] = field(default_factory=dict)
    done: set[Position] = field(default_factory=set)

    @property
    def keyed(self) -> bool:
        return len(self.parts) > 1

    def claimed(self) -> list[Position]:
        """Return all claimed messages."""
        return [position for row in self.members.values() for position in row.held]


def cut(spans: Iterable[Span], log: str, end: int) -> list[Span]:
    """Return the spans with the growing one of `log` ended."""
    closed = [replace(span, high=end) if span.log == log and span.high is None else span for span in spans]
    return [span for span in closed if span.high is None or span.low < span.high]


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def view(history: Iterable[Span], watermark: Mapping[str, int]) -> list[Span]:
    """Return another server's history for a reader that has all records up to the watermark."""
    return [replace(span, watermark=larger(span.watermark, watermark)) for span in history]


def raised(spans: Iterable[Span], lows: Mapping[str, int]) -> list[Span]:
    """Return the spans from the first offset of each log that retention has kept."""
    some = [replace(span, low=max(span.low, lows[span.log])) for span in spans]
    return [span for span in some if span.high is None or span.low < span.high]
