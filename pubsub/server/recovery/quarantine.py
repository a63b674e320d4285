"""Topics that must not be served, because they were abandoned here or are older than the server's answers.

There are two states. Both are durable and in the report, and such a topic is never merged into another one:

* *Quarantined* (`quarantined`). An operator abandoned this server's part of a topic while the server was away, and
  the others continued without it. A proxy reports that when this server announces the topic again. The server then
  drops the topic: it announces nothing, and may begin a new topic of the same name. The records stay in the store.
  `pubsub server export --quarantined` writes them to files.
* *Held back* (`held`). There is evidence that this store is a copy from before some of its answers. A client has a
  position beyond a log's end, or a put follows others that this log acknowledged and does not have. The topic stays
  announced, so that no other server begins it. Every request is answered `unavailable`, until `pubsub server restored`
  declares this copy the newest. If a proxy knows that the complete store is older than it was, all topics are
  held back.

A topic with a damaged page is held back too, but only in memory, until the next start.

The rules are those of docs/explanation/merge.md, M13; docs/explanation/stores.md, S11.
"""

from __future__ import annotations

from pubsub.protocol.messages import Outcome
from pubsub.server.moves.moves import Moves
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.loaded import QuarantinedTopic
from pubsub.server.topic.notes import HELD, STALE, STALE_CHANGE
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.retention import Retention


class Quarantine:
    """Quarantines topics of one server, and holds topics back.

    Args:
        state: keeps both kinds of topics.
        retention, moves: stopped for such topics.
    """

    def __init__(self, state: State, retention: Retention, moves: Moves) -> None:
        self._state, self._retention, self._moves = state, retention, moves

    def quarantine(self, topic: Topic, reason: str, now: float) -> None:
        """Quarantine a topic that was abandoned here: remove it from service, and keep its records."""
        state = self._state
        stamp = state.stamps.reading(now)
        self.stop(topic.name)
        self.release(topic.name)
        state.remove(topic.name)
        state.uncommitted.rows.append(c.TopicSetAside(topic.number, reason, stamp))
        state.announce(topic.name, "")
        state.uncommitted.keep(state, "quarantined")
        quarantined = [*state.quarantined, QuarantinedTopic(topic.name, topic.open.id, reason, stamp)]
        state.quarantined = sorted(quarantined, key=lambda one: (one.stamp, one.topic))
        state.counters["topics_quarantined"] += 1

    def hold_back(self, topic: Topic, reason: str) -> None:
        """Hold a topic back after evidence that it is an older copy of itself."""
        state = self._state
        if topic.name in state.held:
            return
        self.stop(topic.name)
        state.uncommitted.keep_item(state.held, topic.name)
        state.held[topic.name] = reason
        state.uncommitted.touched.add(topic.name)
        state.uncommitted.rows.append(c.NoteKept(HELD + topic.name, reason))
        state.counters["topics_held_back"] += 1

    def damaged(self, topic: Topic, reason: str) -> None:
        """Hold back a topic with a damaged page; other topics are served.

        This is not stored. The next start tries again, because the page may have been restored or become readable by
        then.
        """
        state = self._state
        state.damaged.add(topic.name)
        if topic.name in state.held:
            return
        self.stop(topic.name)
        state.held[topic.name] = reason
        state.counters["topics_held_back"] += 1

    def hold_all_back(self, reason: str, change: int) -> None:
        """Hold back all topics after a proxy reported that this store is an older copy of itself.

        Args:
            change: the change number that the proxy knows of.
        """
        state = self._state
        if state.stale:
            return
        state.uncommitted.keep(state, "stale")
        state.stale = reason
        for name in state.topics:
            self.stop(name)
        state.uncommitted.rows += [c.NoteKept(STALE, reason), c.NoteKept(STALE_CHANGE, change)]

    def release(self, topic: str) -> None:
        """Serve a topic again that was held back."""
        state = self._state
        if topic in state.held:
            state.uncommitted.keep_item(state.held, topic)
            del state.held[topic]
            state.uncommitted.rows.append(c.NoteKept(HELD + topic, None))

    def stop(self, name: str) -> None:
        """End all activity of a topic."""
        state = self._state
        state.long_polls.end_all(name, Outcome.UNAVAILABLE)
        self._retention.forget(name)
        self._moves.stop(name)
