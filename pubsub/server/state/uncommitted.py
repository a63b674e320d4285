"""What a loop changed, marked in memory and made into `Change` values once, however often it moved.

An acknowledgement alone is not worth a commit: it waits a moment for one to ride on, since a client repeats it with
every GET. Everything else is committed by the loop that made it.

Where the commit fails the loop is undone, by one rule: a topic that it touched is loaded from the store again; whatever
else in memory is durable was named to `keep` or `undo` before it changed, and is put back, the latest first. Whoever
changes such a thing without a word leaves a lie in memory: `tests/simulation/memory.py` compares it with the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pubsub.server.topic import changes as c
from pubsub.server.topic.topic import Topic

ACKNOWLEDGE_SECONDS: Final = 0.2
"""How long an acknowledgement may wait for a commit to ride on."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


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
        self._undo: list[Callable[[], object]] = []

    def undo(self, action: Callable[[], object]) -> None:
        """Have this put back what is about to change, where the loop is undone."""
        self._undo.append(action)

    def keep(self, owner: object, attribute: str) -> None:
        """An attribute is about to have another value, which the commit makes durable."""
        value = getattr(owner, attribute)
        self._undo.append(lambda: setattr(owner, attribute, value))

    def keep_item(self, items: dict[_Key, _Value], key: _Key) -> None:
        """The same of what a mapping has under a key, or that it has nothing there."""
        if key in items:
            value = items[key]
            self._undo.append(lambda: items.__setitem__(key, value))
        else:
            self._undo.append(lambda: items.pop(key, None))

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

    def committed(self) -> None:
        """All that was taken is durable."""
        self.touched.clear()
        self._undo.clear()

    def revert(self) -> list[str]:
        """Put back what is not durable, and forget all marks; the topics that are to be loaded again, sorted."""
        undo, self._undo = self._undo, []
        for action in reversed(undo):
            action()
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
