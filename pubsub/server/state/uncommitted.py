"""What a loop changed, marked in memory and made into `Change` values once, however often it moved.

An acknowledgement alone is not worth a commit: it waits a moment for one to ride on, since a client repeats it with
every GET. Everything else is committed by the loop that made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.server.topic import changes as c
from pubsub.server.topic.topic import Topic

ACKNOWLEDGE_SECONDS: Final = 0.2
"""How long an acknowledgement may wait for a commit to ride on."""


class Uncommitted:
    """What is to be committed.

    Args:
        topics: the server's, by name.
    """

    def __init__(self, topics: dict[str, Topic]) -> None:
        self._topics = topics
        self.rows: list[c.Change] = []
        """New rows, in order."""
        # Dicts for sets: changes come out in the order in which they were marked, the same in every process.
        self._spines: dict[str, None] = {}
        self._last: dict[tuple[str, int], None] = {}
        self._entries: dict[tuple[str, str], None] = {}
        self._acknowledged: dict[tuple[str, str], None] = {}
        self._acknowledge_by = float("inf")
        self.touched: set[str] = set()
        """Topics of which something is taken and not committed yet."""

    def topic(self, name: str) -> None:
        """A topic is new, or its spine changed."""
        self._spines[name] = None

    def last(self, topic: str, publisher: int) -> None:
        """A publisher's last counter moved."""
        self._last[topic, publisher] = None

    def entry(self, topic: str, subscriber: str) -> None:
        """A subscription, or the opening of its client, changed."""
        self._entries[topic, subscriber] = None

    def acknowledged(self, topic: str, subscriber: str, now: float) -> None:
        """A subscriber's position moved, and nothing else about it."""
        self._acknowledged[topic, subscriber] = None
        self._acknowledge_by = min(self._acknowledge_by, now + ACKNOWLEDGE_SECONDS)

    def gone(self, topic: str) -> None:
        """A topic is no longer held: nothing that was marked of it matters."""
        self.touched.add(topic)
        self._spines.pop(topic, None)
        self._last = {mark: None for mark in self._last if mark[0] != topic}
        self._entries = {mark: None for mark in self._entries if mark[0] != topic}
        self._acknowledged = {mark: None for mark in self._acknowledged if mark[0] != topic}

    def deadline(self) -> float:
        """When acknowledgements are to be committed at the latest."""
        return self._acknowledge_by

    def take(self, now: float) -> list[c.Change]:
        """Everything marked, as values, in an order in which they can be applied."""
        if not (self.rows or self._spines or self._last or self._entries or now >= self._acknowledge_by):
            return []
        entries = self._entries | self._acknowledged
        self._touch(entries)
        out = self.rows
        out += [self._topic_changed(self._topics[name]) for name in self._spines]
        out += [self._last_moved(self._topics[name], publisher) for name, publisher in self._last]
        out += [self._entry_changed(self._topics[name], subscriber) for name, subscriber in entries]
        self._clear()
        return out

    def drop(self) -> list[str]:
        """Forget all that is marked or taken since the last commit; the topics that it was about, sorted."""
        self._touch(self._entries | self._acknowledged)
        touched, self.touched = self.touched, set()
        self._clear()
        return sorted(touched)

    def _touch(self, entries: Iterable[tuple[str, str]]) -> None:
        self.touched.update(self._spines)
        self.touched.update(name for name, _ in self._last)
        self.touched.update(name for name, _ in entries)

    def _clear(self) -> None:
        self.rows, self._spines, self._last, self._entries = [], {}, {}, {}
        self._acknowledged, self._acknowledge_by = {}, float("inf")

    @staticmethod
    def _topic_changed(topic: Topic) -> c.TopicChanged:
        return c.TopicChanged(topic.number, topic.name, topic.open.number, topic.spine, topic.frozen)

    @staticmethod
    def _last_moved(topic: Topic, publisher: int) -> c.LastMoved:
        return c.LastMoved(topic.number, publisher, topic.last[publisher])

    @staticmethod
    def _entry_changed(topic: Topic, subscriber: str) -> c.EntryChanged:
        entry = topic.entries[subscriber]
        return c.EntryChanged(
            topic.number,
            subscriber,
            entry.number,
            entry.opening,
            entry.on,
            entry.since,
            entry.acknowledged,
            entry.legs,
        )
