"""The spans that a subscription has still to receive, and the acknowledged position, independent of its consumer.

The rule is docs/explanation/continuing.md, C5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pubsub.protocol.names import Position
from pubsub.server.topic import spans as spans_of
from pubsub.server.topic.log import Log
from pubsub.server.topic.spans import Span


@dataclass(slots=True)
class Cursor:
    """A place in a topic.

    Attributes:
        since: the server's clock when the subscription was made, less the bound on skew (microseconds since 1970).
        acknowledged: the last position that is durable at the consumer.
        backlog: the spans still to be received, in order.
        handed: the furthest position of the backlog that may have been handed out. In memory only; None if none was.
        far: True if the last answer left the reader far behind (`requests.replays`). In memory only.
        short: True if the start `last:N` read the most rows that one start may read, so that there may be more records
            than it found. In memory only.
        expired: number of records that were left out as too old since the server's start; expired_below: by log, the
            offset below which they are counted. In memory only.
    """

    since: int
    acknowledged: Position
    backlog: tuple[Span, ...]
    handed: Position | None = field(default=None, compare=False)
    far: bool = field(default=False, compare=False)
    short: bool = field(default=False, compare=False)
    expired: int = field(default=0, compare=False)
    expired_below: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def doubtful(self) -> bool:
        """True if the backlog holds records that a lost state directory may have processed."""
        return any(span.doubtful for span in self.backlog)

    def marked(self) -> tuple[Span, ...]:
        """Return the backlog, with all records that may have been handed out marked as doubtful."""
        return spans_of.marked(self.backlog, self.handed)

    def behind(self, position: Position | None) -> tuple[Span, ...] | None:
        """Return the spans after a position, or all spans for None; None if no span holds the position."""
        if position is None or position == self.acknowledged:
            return self.backlog
        return spans_of.after(self.backlog, position)

    def acknowledge(self, last: Position) -> bool:
        """Drop all records up to `last` from the backlog; return False if no span holds that position."""
        rest = self.behind(last)
        if rest is None:
            return False
        self.backlog, self.acknowledged = rest, last
        return True

    def falls_behind(self, *, far: bool) -> None:
        """Record whether the last answer left the reader far behind."""
        self.far = far

    def suppose_all_handed_out(self, logs: Mapping[str, Log]) -> None:
        """Count the whole stored backlog as handed out, because it is unknown how much was."""
        for span in reversed(self.backlog):
            log = logs.get(span.log)
            stop = 0 if log is None else log.end if span.high is None else min(span.high, log.end)
            if span.low < stop:
                self.handed = span.log, stop - 1
                return
        self.handed = None

    def hand_out(self, last: Position) -> None:
        """Record that all records up to this position are about to be handed out."""
        old = None if self.handed is None else spans_of.find(self.backlog, self.handed)
        new = spans_of.find(self.backlog, last)
        if new is not None and (old is None or self.handed is None or (new, last[1]) > (old, self.handed[1])):
            self.handed = last
