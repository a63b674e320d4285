"""What subscribers had not acknowledged of deleted topics, so that each learns exactly what it has lost.

A deletion drops the subscriptions with the topic, in the same commit. That commit keeps a row for each of them: the
number of the subscription, and the ranges of messages that it had not acknowledged. The next GET of the subscriber is
answered from that row. A new subscription of that subscriber removes the row.

    number log:low-high,…      the value of a row; no range: the subscriber had acknowledged everything

The rule is docs/explanation/deletion.md, UD7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pubsub.protocol.messages import Get
from pubsub.protocol.names import Position
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.topic import spans as spans_of
from pubsub.server.topic.changes import NoteKept
from pubsub.server.topic.consumers import KEY as NAMED
from pubsub.server.topic.notes import UNDELIVERED
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

UNDELIVERED_MAX: Final = 10_000
"""Limit of the rows of one server. The oldest rows go; these subscribers learn of the deletion without a range."""

Lost = tuple[Position, Position] | None
"""First and last lost position; None: nothing is lost."""

Key = tuple[str, str]
"""Topic and subscriber."""


class Undelivered:
    """The rows of one server.

    Args:
        notes: of the store.
        uncommitted: records each change.

    Attributes:
        rows: the values of the rows, the oldest first.
    """

    def __init__(self, notes: Mapping[str, object], uncommitted: Uncommitted) -> None:
        self._uncommitted = uncommitted
        self.rows: dict[Key, str] = {}
        for name, value in notes.items():
            if name.startswith(UNDELIVERED) and value is not None:
                topic, _, subscriber = name.removeprefix(UNDELIVERED).partition(" ")
                self.rows[topic, subscriber] = str(value)

    def keep(self, topic: Topic) -> None:
        """Keep what the clients that are subscribed to a topic have not acknowledged; it is deleted."""
        for subscriber, subscription in topic.subscriptions.items():
            if subscription.on and not subscriber.startswith(NAMED):
                self.forget(topic.name, subscriber)
                self._set((topic.name, subscriber), value_of(topic, subscription))
        while len(self.rows) > UNDELIVERED_MAX:
            self.forget(*next(iter(self.rows)))

    def forget(self, topic: str, subscriber: str) -> None:
        """Remove the row of a subscriber, if there is one: it has another subscription now."""
        if (topic, subscriber) in self.rows:
            self._set((topic, subscriber), None)

    def _set(self, key: Key, value: str | None) -> None:
        self._uncommitted.keep_item(self.rows, key)
        self._uncommitted.rows.append(NoteKept(f"{UNDELIVERED}{key[0]} {key[1]}", value))
        if value is None:
            del self.rows[key]
        else:
            self.rows[key] = value

    def lost(self, get: Get) -> tuple[bool, Lost]:
        """Return whether the loss of the sender of a GET is known, and the loss."""
        return lost(self.rows.get((get.topic, get.sender)), get)


def value_of(topic: Topic, subscription: Subscription) -> str:
    """Return the value of the row of a subscription that goes with its topic."""
    ranges = []
    for span in subscription.cursor.backlog:
        log = topic.logs.get(span.log)
        stop = 0 if log is None else log.end if span.high is None else min(span.high, log.end)
        if span.low < stop:
            ranges.append(f"{span.log}:{span.low}-{stop}")
    return f"{subscription.number} {','.join(ranges)}"


def lost(value: str | None, get: Get) -> tuple[bool, Lost]:
    """Return the loss of a subscriber that sends a GET after the deletion.

    Args:
        value: of its row, if there is one.

    Returns:
        Whether the loss is known, and the loss.
    """
    number, _, ranges = (value or "").partition(" ")
    if number != str(get.number):
        return False, None
    spans: tuple[Span, ...] = tuple(_spans(ranges))
    rest = None if get.last is None else spans_of.after(spans, get.last)
    spans = spans if rest is None else rest  # Without a span, the position is the one before the first span.
    if not spans:
        return True, None
    assert spans[-1].high is not None
    return True, ((spans[0].log, spans[0].low), (spans[-1].log, spans[-1].high - 1))


def _spans(ranges: str) -> Iterable[Span]:
    for one in ranges.split(",") if ranges else ():
        log, _, offsets = one.partition(":")
        low, _, high = offsets.partition("-")
        yield Span(log, int(low), int(high))
