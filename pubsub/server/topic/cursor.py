"""The spans that a subscription has still to receive, and the acknowledged position; nothing about its consumer."""

from __future__ import annotations

from dataclasses import dataclass, field

from pubsub.protocol.names import Position
from pubsub.server.topic import spans as spans_of
from pubsub.server.topic.spans import Span


@dataclass(slots=True)
class Cursor:
    """A place in a topic.

    Attributes:
        since: the server's clock when the subscription was made, less the bound on skew (microseconds since 1970).
        acknowledged: the last position that is durable at the consumer.
        backlog: the spans still to be received, in order.
        handed: the furthest position of the backlog that may have been handed out, in memory only; None: none was.
    """

    since: int
    acknowledged: Position
    backlog: tuple[Span, ...]
    handed: Position | None = field(default=None, compare=False)

    @property
    def doubtful(self) -> bool:
        """Whether it holds records that may have been processed by a state directory that is lost."""
        return any(span.doubtful for span in self.backlog)

    def marked(self) -> tuple[Span, ...]:
        """The backlog, with all that may have been handed out marked as doubtful."""
        return spans_of.marked(self.backlog, self.handed)

    def behind(self, position: Position | None) -> tuple[Span, ...] | None:
        """The spans behind a position, or all for None; None if no span holds it."""
        if position is None or position == self.acknowledged:
            return self.backlog
        return spans_of.after(self.backlog, position)

    def acknowledge(self, last: Position) -> bool:
        """Drop all up to `last` from the backlog; False if no span holds that position."""
        rest = self.behind(last)
        if rest is None:
            return False
        self.backlog, self.acknowledged = rest, last
        return True

    def hand_out(self, last: Position) -> None:
        """All up to this position is about to be handed out."""
        old = None if self.handed is None else spans_of.find(self.backlog, self.handed)
        new = spans_of.find(self.backlog, last)
        if new is not None and (old is None or self.handed is None or (new, last[1]) > (old, self.handed[1])):
            self.handed = last
