"""What the purges of a topic let go, and what they hide from readers until it is deleted.

The rules are those of docs/explanation/topics.md, U4, U7 and U8.
"""

from __future__ import annotations

from collections.abc import Mapping

from pubsub.server.topic.compacted import removed, within
from pubsub.server.topic.purges import NOWHERE
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic


def kept_places(topic: Topic, kept: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets below which `keep` lets messages go, raised to the purges.

    Args:
        kept: these offsets without purges, by log.
    """
    return {log: max(place, topic.purged.get(log, NOWHERE).kept) for log, place in kept.items()}


def unread_place(topic: Topic, log: str) -> int:
    """Return the offset below which messages of a log are gone for every reader; 0 if there was no such purge."""
    return topic.purged.get(log, NOWHERE).unread if topic.purged else 0


def hidden_below(topic: Topic) -> dict[str, int]:
    """Return by log the offset below which a new reader gets no message: purged, and needed by no subscriber."""
    if not topic.purged:
        return {}
    floors = topic.floors()
    return {
        log: max(places.unread, min(places.kept, floors[log])) for log, places in topic.purged.items() if log in floors
    }


def without_purged(topic: Topic) -> tuple[Span, ...]:
    """Return the history without the messages that a purge lets go and no subscriber needs."""
    if not topic.purged:
        return topic.history
    floors = topic.floors()

    def begin(span: Span) -> int:
        return max(span.low, min(topic.purged.get(span.log, NOWHERE).kept, floors.get(span.log, span.low)))

    moved = [span.from_offset(begin(span)) for span in topic.history]
    return tuple(span for span in moved if span.high is None or span.low < span.high)


def shown_records(topic: Topic) -> int:
    """Count the stored messages, without those that a purge hides until they are deleted.

    Messages that compaction removed count as far as their number is not known, after a part of them was trimmed.
    """
    hidden, count = hidden_below(topic), 0
    for log in topic.logs.values():
        low, high = max(log.low, hidden.get(log.id, 0)), log.end - log.unknown
        parts = topic.compacted.get(log.id, ())
        count += max(0, high - low - (removed(within(parts, low, high)[0]) if parts else 0))
    return count
