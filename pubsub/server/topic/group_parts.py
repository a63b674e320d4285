"""Changes of a topic's groups: a group, and the subscriptions with the waiting records of its parts."""

from __future__ import annotations

from pubsub.server.topic.group import Group
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic


def enter_group(topic: Topic, group: Group) -> None:
    """Add a group to a topic, or replace it."""
    topic.groups[group.name] = group
    topic.dirty.group(topic.name, group.name)


def wait(topic: Topic, key: str, spans: tuple[Span, ...]) -> None:
    """Replace the waiting records of a part, by the key of its subscription."""
    topic.subscriptions[key].cursor.backlog = spans
    topic.dirty.subscription(topic.name, key)


def close_part(topic: Topic, key: str, number: int) -> None:
    """End the subscription of a part under this number."""
    part = topic.subscriptions[key]
    part.number, part.on, part.cursor.backlog = number, False, ()
    topic.dirty.subscription(topic.name, key)
