"""The quotas of topics: how many messages and bytes clients put in a second (docs/explanation/quotas.md, QU1).

Buckets are in memory only: they are full after a start, and at a new owner. A topic without a quota has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.base.buckets import Pace
from pubsub.protocol.messages import Put
from pubsub.server.topic.topic import Topic

QUOTA_TOPIC: Final = "quota_topic"
"""Reason of an answer to a put above the quota of its topic."""


class Quotas:
    """The buckets of the topics of one server.

    Args:
        topics: those that it holds, by name.

    Attributes:
        after: milliseconds until the put that `holds` has put off may go.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._paces: dict[str, Pace] = {}
        self.after = 0

    def holds(self, topic: Topic, now: float) -> bool:
        """Return True if a put to a topic, which is not a repeat, has to wait. `now`: monotonic seconds."""
        pace = self._pace(topic, now)
        self.after = 0 if pace is None else pace.after(now)
        return self.after > 0

    def took(self, topic: Topic, put: Put, now: float) -> None:
        """Count a stored put."""
        pace = self._pace(topic, now)
        if pace is not None:
            pace.take(put.count, len(put.body))

    def _pace(self, topic: Topic, now: float) -> Pace | None:
        quota, pace = topic.in_force.quota, self._paces.get(topic.name)
        if quota == (None, None):
            if pace is not None:
                del self._paces[topic.name]
            return None
        if pace is None or pace.quota != quota:
            if len(self._paces) > len(self._topics):  # Some of them were given away.
                self._paces = {name: held for name, held in self._paces.items() if name in self._topics}
            pace = self._paces[topic.name] = Pace(quota, now)
        return pace

    def facts(self, topic: Topic) -> dict[str, Any]:
        """Return the facts of a topic for a report: `throttled` puts, and `throttled_seconds`, since the start."""
        pace = self._paces.get(topic.name)
        if pace is None:
            return {"throttled": 0, "throttled_seconds": 0.0}
        return {"throttled": pace.held, "throttled_seconds": round(pace.held_seconds, 3)}
