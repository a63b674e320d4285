"""Compaction: of each key, a topic with `keep=latest` keeps the last record.

The rules are those of docs/explanation/compaction.md, KL1, KL2 and KL4.

A pass goes along the history of one topic, from the newest record back to the oldest, and remembers the keys that it
has met. A record of such a key is superseded. The pass advances in rounds. Each round looks at a bounded stretch, after
the question whether this server is the sole owner, and its removals are one transaction. A round takes a small part of
the time, and a longer pause follows.

The set of keys has a limit. Beyond it, the pass goes on to the oldest record without new keys, and then begins another
part where the set was full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.due_times import DueTimes
from pubsub.errors import StoreDamaged
from pubsub.protocol.topic_settings import NOT_SOLE_OWNER
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.ownership.sole_owner import Compacting, SoleOwner
from pubsub.server.state.state import State
from pubsub.server.topic.changes import Change
from pubsub.server.topic.compacted import outside, removed
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep.stretches import Pass

LOOK_SECONDS: Final = 5.0
"""Time after a put before a topic is looked at, and the least time between two passes."""

LEFT_SECONDS: Final = 60.0
"""Time before the next pass if the last one left records that may go later. It doubles up to `LEFT_SECONDS_MAX`."""

LEFT_SECONDS_MAX: Final = 3_600.0

SHARE: Final = 0.05
"""Part of the time that rounds take."""

GROWTH: Final = 4
"""A pass begins when the topic has grown by this part of its records, one in so many, or after `LEFT_SECONDS_MAX`."""


class Compaction:
    """The passes of a server, one topic at a time.

    Args:
        sole_owner: answers whether this server is a topic's sole owner.
        patterns: makes the entries of subscribers to patterns.
        trimmed: raises the low end of a log, and returns the changes.
        now: monotonic seconds.
        trusts_ages: returns False while the server's clock may be ahead.

    Attributes:
        clock: returns monotonic seconds, to measure rounds.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        patterns: ServerPatterns,
        trimmed: Callable[[Topic, Log, int], list[Change]],
        now: float,
        trusts_ages: Callable[[float], bool],
    ) -> None:
        self._trusts_ages = trusts_ages
        self._state, self._sole_owner, self._patterns, self._trimmed = state, sole_owner, patterns, trimmed
        self.clock: Callable[[], float] = lambda: 0.0
        compacts = [name for name, topic in state.topics.items() if topic.settings.compacts]
        self._due = DueTimes(dict.fromkeys(compacts, now + LOOK_SECONDS))
        """When each topic is due for a pass."""
        self._number = 0
        """Rises with each pass, so that an answer for an earlier one counts for nothing."""
        self._enough: dict[str, int] = {}
        """The end of the open log from which on a topic has grown enough for another pass."""
        self._left: dict[str, float] = {}
        """Topics with records that may go later: the time until the next pass."""
        self._pass: Pass | None = None
        self._asked = self._granted = False
        self._next_at = float("-inf")
        """Time from which the next round may run."""

    # What retention reports

    def appended(self, topic: Topic, now: float) -> None:
        """Record that a topic that keeps the latest records has a new batch."""
        if topic.open.end >= self._enough.get(topic.name, 0):
            self._due.hasten(topic.name, now + LOOK_SECONDS)
        elif topic.name not in self._due:
            self._due.hasten(topic.name, now + LEFT_SECONDS_MAX)

    def look_at(self, name: str) -> None:
        """Make a topic due at once, because it has other settings or holds more than before."""
        topic = self._state.topics.get(name)
        if topic is not None and topic.settings.compacts:
            self._left.pop(name, None)
            self._enough.pop(name, None)
            self._due.hasten(name, float("-inf"))

    def forget(self, name: str) -> None:
        """End the pass of a topic, because its history or its settings have changed."""
        if self._pass is not None and self._pass.topic.name == name:
            self._end()

    def trimmed(self, topic: Topic, log: str, now: float) -> None:
        """Begin the pass of a topic anew if a trim has removed a log: the pass would look for it."""
        if log not in topic.logs and self._pass is not None and self._pass.topic is topic:
            self._due.hasten(topic.name, now + LOOK_SECONDS)
            self._end()

    def pause(self, until: float) -> None:
        """Wait before the next round, because the loop was undone. The topic of the pass is another object now."""
        self._next_at = max(self._next_at, until)
        if self._pass is not None:
            self._due.hasten(self._pass.topic.name, until)
            self._end()

    def decided(self, asked: Compacting, sole_owner: bool, now: float) -> None:
        """Process the answer to whether this server is the sole owner of the topic of the pass."""
        if self._pass is None or asked.generation != self._number:
            return
        topic = self._pass.topic
        self._asked, self._granted = False, sole_owner
        if topic.not_let_go in {"", NOT_SOLE_OWNER}:
            topic.not_let_go = "" if sole_owner else NOT_SOLE_OWNER
        # A subscriber to a pattern is to receive the records of its own time, and may have no subscription here yet.
        if not (sole_owner and self._patterns.prepare(topic, asked.denied, True, sole_owner)):
            self._due.hasten(topic.name, now + LOOK_SECONDS)
            self._end()

    # Time

    def deadline(self) -> float:
        """Return the time at which `tick` has work."""
        if self._asked:
            return float("inf")
        if self._pass is not None:
            return self._next_at
        return max(self._due.deadline(), self._next_at)

    def tick(self, now: float) -> list[Change]:
        """Begin a pass, ask for its next round, or carry out the round that was allowed."""
        if now < self._next_at or self._asked:
            return []
        if self._pass is None and not (self._due and self._begin(now)):
            return []
        assert self._pass is not None
        name = self._pass.topic.name
        if not self._granted:
            self._asked = self._sole_owner.ask(name, Compacting(name, self._number))
            if not self._asked:
                self._next_at = now + LOOK_SECONDS
            return []
        self._granted = False
        return self._round(self._pass, now)

    def _begin(self, now: float) -> bool:
        for name in self._due.take(now):
            topic = self._state.topics.get(name)
            if topic is None or topic.frozen or not topic.settings.compacts:
                self._left.pop(name, None)
                continue
            self._enough[name] = topic.open.end + max(1, _records(topic) // GROWTH)
            self._pass = Pass(self._state, topic)
            return True
        return False

    def _round(self, running: Pass, now: float) -> list[Change]:
        state, topic, begun = self._state, running.topic, self.clock()
        changes: list[Change] = []
        try:
            if not running.finished:
                changes = running.round(now, self.clock, ages=self._trusts_ages(now))
            if running.finished:
                changes += self._trim_fronts(topic)
        except StoreDamaged:  # The topic keeps its records.
            state.found_damaged(topic)
            self._end()
            return changes
        spent = max(0.0, self.clock() - begun)
        self._next_at = now + spent / SHARE
        state.counters["compaction_rounds"] += 1
        if running.finished:
            self._finish(running, now)
        return changes

    def _finish(self, running: Pass, now: float) -> None:
        topic = running.topic
        topic.superseded_since = running.held_since
        topic.not_let_go = f"subscriber {running.held_by}" if running.held_by else ""
        self._state.counters["compactions"] += 1
        if running.left:
            longer = min(LEFT_SECONDS_MAX, 2 * self._left.get(topic.name, LEFT_SECONDS / 2))
            wait = self._left[topic.name] = LEFT_SECONDS if running.removed else longer
            self._due.hasten(topic.name, now + wait)
        else:
            self._left.pop(topic.name, None)
        if running.ends < float("inf"):
            wait = (running.ends - self._state.stamps.reading(now)) / MICROSECONDS
            self._due.hasten(topic.name, now + max(LEFT_SECONDS, wait))
        self._end()

    def _trim_fronts(self, topic: Topic) -> list[Change]:
        """Raise the low end of each log above offsets that were all removed."""
        out: list[Change] = []
        floors = topic.floors()
        for log in list(topic.logs.values()):
            if log.id not in topic.compacted:
                continue
            rows = self._state.reader.stamps(log.number, log.low, 1)
            first = rows[0][0] if rows else log.end
            if first > log.low and first <= floors[log.id] and not [*outside(topic.compacted[log.id], log.low, first)]:
                out += self._trimmed(topic, log, first)
        return out

    def _end(self) -> None:
        self._pass, self._asked, self._granted = None, False, False
        self._number += 1


def _records(topic: Topic) -> int:
    """Return the number of stored records of a topic, as far as it is known."""
    stored = sum(log.end - log.unknown - log.low for log in topic.logs.values())
    return stored - sum(removed(parts) for parts in topic.compacted.values())
