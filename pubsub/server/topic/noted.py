"""What is different in memory and not stored yet, noted by the methods that change it (`Topic`'s, above all)."""

from __future__ import annotations

from pubsub.server.topic.changes import Change


class Noted:
    """The notes of one loop, by the names of topics.

    Attributes:
        rows: new rows, in order.
        touched: topics of which something is taken and not committed yet.
    """

    def __init__(self) -> None:
        self.rows: list[Change] = []
        self.touched: set[str] = set()
        # Dicts for sets: changes come out in the order in which they were noted, the same in every process.
        self._topics: dict[str, None] = {}
        self._last: dict[tuple[str, int], None] = {}
        self._subscriptions: dict[tuple[str, str], None] = {}
        self._acknowledged: dict[tuple[str, str], None] = {}

    def topic(self, name: str) -> None:
        """A topic is new, or its open log, its history or whom it is frozen for is different."""
        self._topics[name] = None

    def last(self, topic: str, publisher: int) -> None:
        """A publisher's last counter moved."""
        self._last[topic, publisher] = None

    def subscription(self, topic: str, subscriber: str) -> None:
        """A subscription, or the epoch of its client, is different."""
        self._subscriptions[topic, subscriber] = None

    def acknowledged(self, topic: str, subscriber: str) -> None:
        """A subscriber's position moved, and nothing else about it."""
        self._acknowledged[topic, subscriber] = None

    def row(self, topic: str, change: Change) -> None:
        """Something else about a topic is different, as this row says."""
        self.touched.add(topic)
        self.rows.append(change)

    def gone(self, topic: str) -> None:
        """A topic is no longer held: nothing that was noted of it matters."""
        self.touched.add(topic)
        self._topics.pop(topic, None)
        self._last = {note: None for note in self._last if note[0] != topic}
        self._subscriptions = {note: None for note in self._subscriptions if note[0] != topic}
        self._acknowledged = {note: None for note in self._acknowledged if note[0] != topic}
