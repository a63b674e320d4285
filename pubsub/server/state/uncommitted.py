"""What a loop changed, noted in memory and made into `Change` values once, however often it moved.

An acknowledgement alone is not worth a commit: it waits a moment for one to ride on, since a client repeats it with
every GET. Everything else is committed by the loop that made it.

A topic changes only by its own methods, which note what is different.

Where the commit fails the loop is undone, by one rule: a topic that it touched is loaded from the store again; whatever
else in memory is durable was named to `keep` or `undo` before it changed, and is put back, the latest first. Whoever
changes such a thing without a word leaves a lie in memory: `tests/simulation/memory.py` compares it with the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pubsub.server.topic import changes as c
from pubsub.server.topic.noted import Noted
from pubsub.server.topic.topic import Topic

ACKNOWLEDGE_SECONDS: Final = 0.2
"""How long an acknowledgement may wait for a commit to ride on."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Uncommitted(Noted):
    """What is to be committed.

    Args:
        topics: the server's, by name; each notes here what of it changes.
    """

    def __init__(self, topics: dict[str, Topic]) -> None:
        super().__init__()
        self._held = topics
        self._acknowledge_by = float("inf")
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

    def deadline(self) -> float:
        """When acknowledgements are to be committed at the latest."""
        return self._acknowledge_by

    def take(self, now: float) -> list[c.Change]:
        """Everything noted, as values, in an order in which they can be applied."""
        if not (self.rows or self._topics or self._last or self._subscriptions or now >= self._acknowledge_by):
            if self._acknowledged and self._acknowledge_by == float("inf"):
                self._acknowledge_by = now + ACKNOWLEDGE_SECONDS
            return []
        subscriptions = self._subscriptions | self._acknowledged
        self._touch(subscriptions)
        out = self.rows
        out += [self._topic_changed(self._held[name]) for name in self._topics]
        out += [self._last_moved(self._held[name], publisher) for name, publisher in self._last]
        out += [self._subscription_changed(self._held[name], subscriber) for name, subscriber in subscriptions]
        self._clear()
        return out

    def committed(self) -> None:
        """All that was taken is durable."""
        self.touched.clear()
        self._undo.clear()

    def revert(self) -> list[str]:
        """Put back what is not durable, and forget all notes; the topics that are to be loaded again, sorted."""
        undo, self._undo = self._undo, []
        for action in reversed(undo):
            action()
        self._touch(self._subscriptions | self._acknowledged)
        touched, self.touched = self.touched, set()
        self._clear()
        return sorted(touched)

    def _touch(self, subscriptions: Iterable[tuple[str, str]]) -> None:
        self.touched.update(self._topics)
        self.touched.update(name for name, _ in self._last)
        self.touched.update(name for name, _ in subscriptions)

    def _clear(self) -> None:
        self.rows, self._topics, self._last, self._subscriptions = [], {}, {}, {}
        self._acknowledged, self._acknowledge_by = {}, float("inf")

    @staticmethod
    def _topic_changed(topic: Topic) -> c.TopicChanged:
        return c.TopicChanged(topic.number, topic.name, topic.open.number, topic.history, topic.frozen)

    @staticmethod
    def _last_moved(topic: Topic, publisher: int) -> c.LastMoved:
        return c.LastMoved(topic.number, publisher, topic.last[publisher])

    @staticmethod
    def _subscription_changed(topic: Topic, subscriber: str) -> c.SubscriptionChanged:
        return c.SubscriptionChanged(topic.number, subscriber, *topic.subscriptions[subscriber].row())
