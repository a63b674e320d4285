"""The changes of a loop, recorded in memory, and made into one `Change` value each, however often a value changed.

An acknowledgement alone is not worth a commit. It waits a moment for another commit, because a client repeats it with
every GET. All other changes are committed by the loop that made them.

A topic changes only by its own methods, which record the change.

If the commit fails, the loop is undone by one rule. Each topic that the loop touched is loaded from the store again.
All other durable state must be passed to `keep` or `undo` before it changes, and is restored, the latest change first.
A change without that call would leave a wrong value in memory: `tests/simulation/memory.py` compares memory with the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pubsub.server.topic import changes as c
from pubsub.server.topic.dirty import DirtyState
from pubsub.server.topic.group import group_changes
from pubsub.server.topic.topic import Topic

ACKNOWLEDGE_SECONDS: Final = 0.2
"""Maximum time that an acknowledgement waits for another commit."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Uncommitted(DirtyState):
    """The changes to commit.

    Args:
        topics: the server's topics by name; each records its changes here.
    """

    def __init__(self, topics: dict[str, Topic]) -> None:
        super().__init__()
        self._held = topics
        self._acknowledge_by = float("inf")
        self._undo: list[Callable[[], object]] = []

    def undo(self, action: Callable[[], object]) -> None:
        """Call `action` if the loop is undone. It must restore the value that is about to change."""
        self._undo.append(action)

    def keep(self, owner: object, attribute: str) -> None:
        """Restore an attribute if the loop is undone. Call this before the attribute changes."""
        value = getattr(owner, attribute)
        self._undo.append(lambda: setattr(owner, attribute, value))

    def keep_item(self, items: dict[_Key, _Value], key: _Key) -> None:
        """Restore the item of a mapping, or its absence, if the loop is undone."""
        if key in items:
            value = items[key]
            self._undo.append(lambda: items.__setitem__(key, value))
        else:
            self._undo.append(lambda: items.pop(key, None))

    def deadline(self) -> float:
        """Return the latest time at which acknowledgements must be committed."""
        return self._acknowledge_by

    def take(self, now: float) -> list[c.Change]:
        """Return all recorded changes, in an order in which they can be applied."""
        if not (
            self.rows
            or self._topics
            or self._last
            or self._subscriptions
            or self._groups
            or now >= self._acknowledge_by
        ):
            if self._acknowledged and self._acknowledge_by == float("inf"):
                self._acknowledge_by = now + ACKNOWLEDGE_SECONDS
            return []
        subscriptions = self._subscriptions | self._acknowledged
        self._touch(subscriptions)
        out = self.rows
        out += [self._topic_changed(self._held[name]) for name in self._topics]
        out += [self._last_moved(self._held[name], publisher) for name, publisher in self._last]
        out += [self._subscription_changed(self._held[name], subscriber) for name, subscriber in subscriptions]
        for name, group in self._groups:
            out += group_changes(self._held[name].number, self._held[name].groups[group])
        self.touched.update(name for name, _ in self._groups)
        self._clear()
        return out

    def committed(self) -> None:
        """Record that all returned changes are durable."""
        self.touched.clear()
        self._undo.clear()

    def revert(self) -> list[str]:
        """Restore the durable state, drop all changes, and return the sorted names of topics to load again."""
        undo, self._undo = self._undo, []
        for action in reversed(undo):
            action()
        self._touch(self._subscriptions | self._acknowledged)
        touched, self.touched = self.touched, set()
        self._clear()
        return sorted(touched)

    def _touch(self, subscriptions: Iterable[tuple[str, str]]) -> None:
        self.touched.update(self._topics)
        self.touched.update(name for name, _ in (*self._last, *self._groups))
        self.touched.update(name for name, _ in subscriptions)

    def _clear(self) -> None:
        self.rows, self._topics, self._last, self._subscriptions = [], {}, {}, {}
        self._acknowledged, self._acknowledge_by, self._groups = {}, float("inf"), {}

    @staticmethod
    def _topic_changed(topic: Topic) -> c.TopicChanged:
        return c.TopicChanged(topic.number, topic.name, topic.open.number, topic.history, topic.frozen)

    @staticmethod
    def _last_moved(topic: Topic, publisher: int) -> c.LastMoved:
        return c.LastMoved(topic.number, publisher, topic.last[publisher])

    @staticmethod
    def _subscription_changed(topic: Topic, subscriber: str) -> c.SubscriptionChanged:
        return c.SubscriptionChanged(topic.number, subscriber, *topic.subscriptions[subscriber].row())
