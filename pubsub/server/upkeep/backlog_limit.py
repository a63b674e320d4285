"""Topics with a backlog near `backlog_bytes_max`, and the subscriber of each that is furthest behind.

A topic at that limit refuses all its publishers, also if only one subscriber is away. So each such topic is found at
its puts, before it is full, and is named in a warning, in the metrics and in `pubsub status`.

    at most END_SHARE          the topic is not watched
    above BEGIN_SHARE          the topic is watched, and measured again every LOOK_SECONDS
    between the two            it stays watched if it was

Without the gap between the two shares, a topic at the boundary would give a warning at each put. A backlog's bytes are
an upper bound until they are measured, so that a put needs no measurement below BEGIN_SHARE.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pubsub.server.state.state import State
from pubsub.server.topic.topic import Topic

BEGIN_SHARE: Final = 0.8
"""Share of `backlog_bytes_max` above which a topic is watched."""

END_SHARE: Final = 0.7
"""Share of `backlog_bytes_max` up to which a watched topic is watched no more."""

LOOK_SECONDS: Final = 5.0
"""Interval between two measurements of one topic."""

WARNING_SECONDS: Final = 600.0
"""Shortest interval between two warnings about one topic."""

WATCHED_MAX: Final = 100
"""Topics that are watched, and so named in the metrics, at the same time."""

NOTED_MAX: Final = 1_000
"""Topics with a noted time of their last measurement or warning."""


class Backlog(NamedTuple):
    """The backlog of one topic.

    Attributes:
        subscriber: the one with the most waiting messages; "" if only staged rows wait.
        share: bytes of the backlog, divided by `backlog_bytes_max`.
    """

    topic: str
    subscriber: str
    share: float


class BacklogLimit:
    """Watches the topics of one server for backlogs near the limit.

    Attributes:
        watched: the topics above the limit's share, by name.
        passed: topics that passed BEGIN_SHARE and need a warning; the shell takes them.
        ended: names of topics that are below END_SHARE again, or not held any more; the shell takes them.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._limit = state.settings.backlog_bytes_max
        self._begin_bytes = self._limit * BEGIN_SHARE
        self.watched: dict[str, Backlog] = {}
        self.passed: list[Backlog] = []
        self.ended: list[str] = []
        self._looked: dict[str, float] = {}
        self._warned: dict[str, float] = {}
        self._look_at = float("inf")

    def appended(self, topic: Topic, now: float) -> None:
        """Look at a topic with new messages, if its backlog may be above BEGIN_SHARE."""
        if topic.backlog_bytes > self._begin_bytes and topic.name not in self.watched:
            self._look(topic, now)

    def refused(self, topic: Topic | None, reason: str, now: float) -> None:
        """Count a put that was refused for this reason, and look at its topic if the reason is this limit."""
        if topic is not None and reason == "backlog_bytes_max":
            self._state.counters["backlog_limit_refused"] += 1
            if topic.name not in self.watched:
                self._look(topic, now)

    def tick(self, now: float) -> None:
        """Measure the watched topics again when that is due."""
        if now < self._look_at:
            return
        for name in list(self.watched):
            topic = self._state.topics.get(name)
            found = None if topic is None else self._measured(topic)
            if found is None or found.share <= END_SHARE:
                del self.watched[name]
                self.ended.append(name)
            else:
                self.watched[name] = found
        self._look_at = now + LOOK_SECONDS if self.watched else float("inf")

    def deadline(self) -> float:
        """Return the time at which `tick` has work."""
        return self._look_at

    def _look(self, topic: Topic, now: float) -> None:
        if len(self.watched) >= WATCHED_MAX or not _noted(self._looked, topic.name, LOOK_SECONDS, now):
            return
        found = self._measured(topic)
        if found.share <= BEGIN_SHARE:
            return
        if not self.watched:
            self._look_at = now + LOOK_SECONDS
        self.watched[topic.name] = found
        if _noted(self._warned, topic.name, WARNING_SECONDS, now):
            self.passed.append(found)

    def _measured(self, topic: Topic) -> Backlog:
        self._state.measure(topic)
        waiting = ((topic.waiting(one.cursor.backlog), name) for name, one in topic.subscriptions.items() if one.on)
        count, name = max(waiting, default=(0, ""))
        size = topic.backlog_bytes + topic.staged_bytes
        return Backlog(topic.name, name if count else "", size / self._limit)


def _noted(times: dict[str, float], name: str, seconds: float, now: float) -> bool:
    """Note this time for a topic; return False if a time within the last `seconds`, or no room, is there."""
    if now - times.get(name, float("-inf")) < seconds:
        return False
    if len(times) >= NOTED_MAX:
        for old in [one for one, at in times.items() if now - at >= seconds]:
            del times[old]
        if len(times) >= NOTED_MAX:
            return False
    times[name] = now
    return True
