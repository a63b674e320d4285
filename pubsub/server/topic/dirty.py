"""Changes in memory that are not stored yet, noted by the methods that make them (mostly those of `Topic`).

The rule is docs/explanation/cores-and-shells.md, A7.
"""

from __future__ import annotations

from pubsub.server.topic.changes import Change


class DirtyState:
    """The notes of one loop, by topic name.

    Attributes:
        rows: new rows, in order.
        touched: topics with further changes that are not committed yet.
    """

    def __init__(self) -> None:
        self.rows: list[Change] = []
        self.touched: set[str] = set()
        # Dicts serve as ordered sets, so that changes keep the order of the notes, the same in every process.
        self._topics: dict[str, None] = {}
        self._last: dict[tuple[str, int], None] = {}
        self._subscriptions: dict[tuple[str, str], None] = {}
        self._acknowledged: dict[tuple[str, str], None] = {}
        self._groups: dict[tuple[str, str], None] = {}

    def topic(self, name: str) -> None:
        """Record that a topic is new, or has another open log, history or `frozen`."""
        self._topics[name] = None

    def last(self, topic: str, publisher: int) -> None:
        """Record that a publisher's last counter has risen."""
        self._last[topic, publisher] = None

    def subscription(self, topic: str, subscriber: str) -> None:
        """Record that a subscription, or the epoch of its client, has changed."""
        self._subscriptions[topic, subscriber] = None

    def acknowledged(self, topic: str, subscriber: str) -> None:
        """Record that a subscriber's position has moved, and nothing else of the subscription."""
        self._acknowledged[topic, subscriber] = None

    def group(self, topic: str, group: str) -> None:
        """Record that a consumer group, a member of it, or a fact of a record has changed."""
        self._groups[topic, group] = None

    def row(self, topic: str, change: Change) -> None:
        """Record any other change of a topic, as this row."""
        self.touched.add(topic)
        self.rows.append(change)

    def gone(self, topic: str) -> None:
        """Drop the notes of a topic that is no longer held."""
        self.touched.add(topic)
        self._topics.pop(topic, None)
        self._last = {note: None for note in self._last if note[0] != topic}
        self._subscriptions = {note: None for note in self._subscriptions if note[0] != topic}
        self._acknowledged = {note: None for note in self._acknowledged if note[0] != topic}
        self._groups = {note: None for note in self._groups if note[0] != topic}
