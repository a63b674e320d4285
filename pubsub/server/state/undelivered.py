"""What subscribers had not acknowledged of deleted topics, so that each learns what it has lost.

A deletion drops the subscriptions with the topic, in the same commit. That commit keeps a row for each subscribed
client: the number of its subscription, its acknowledged position, and the last offset of the records that follow. The
next GET of the subscriber is answered from that row. A new subscription of that subscriber removes the row.

    number log acknowledged last      the value of a row; both offsets are equal if nothing follows

A subscription has no row if the subscriber may have received some of the records that follow. Then its loss is not
known. That is so in three cases:

* The records are in several logs.
* A merge brought them from another holder.
* They may have been handed out to another state directory.

The rule is docs/explanation/deletion.md, UD7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pubsub.protocol.messages import Get
from pubsub.protocol.names import Position
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.topic.changes import NoteKept
from pubsub.server.topic.consumers import KEY as NAMED
from pubsub.server.topic.notes import UNDELIVERED
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

UNDELIVERED_MAX: Final = 10_000
"""Limit of the rows of one server. Earlier rows are dropped, and the loss of these subscribers is not known."""

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
        rows: the values of the rows.
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
                value = value_of(topic, subscription)
                if value:
                    self._set((topic.name, subscriber), value)
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
        return lost(self.rows.get((get.topic, get.sender), ""), get)


def value_of(topic: Topic, subscription: Subscription) -> str:
    """Return the value of the row of a subscription that goes with its topic; "" if its loss is not known."""
    log, acknowledged = subscription.cursor.acknowledged
    last, waiting = acknowledged, []
    for span in subscription.cursor.backlog:
        held = topic.logs.get(span.log)
        stop = 0 if held is None else held.end if span.high is None else min(span.high, held.end)
        if span.low < stop:
            waiting.append(span)
            last = stop - 1
    if any((span.log, span.low) != (log, acknowledged + 1) or span.watermark or span.doubtful for span in waiting):
        return ""
    return f"{subscription.number} {log} {acknowledged} {last}"


def lost(value: str, get: Get) -> tuple[bool, Lost]:
    """Return the loss of a subscriber that sends a GET after the deletion.

    Args:
        value: of its row; "": there is none.

    Returns:
        Whether the loss is known, and the loss. It is not known if the last received position of the GET is not in the
        range of the row, because another holder sent the record there.
    """
    number, log, *offsets = value.split(" ") if value else ("", "")
    if number != str(get.number):
        return False, None
    acknowledged, last = map(int, offsets)
    received = get.last or (log, acknowledged)
    if received[0] != log or not acknowledged <= received[1] <= last:
        return False, None
    return True, None if received[1] == last else ((log, received[1] + 1), (log, last))
