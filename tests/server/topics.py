"""Topics alone: the common arguments of their tests."""

from __future__ import annotations

from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic


def at_the_end(topic: Topic, since: int = 0) -> Cursor:
    """The cursor of a subscription that begins now."""
    log = topic.open
    return Cursor(since, (log.id, log.end - 1), (Span(log.id, log.end),))
