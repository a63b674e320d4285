"""What must not be served: topics that were given up here, and copies that are older than what was promised.

Two kinds, both durable, both shown in the report, neither ever merged into anything:

* *Set aside*. Operators gave this server's holding of a topic up while it was away, and the others went on without it.
  A proxy says so when the topic is announced again. It is then no topic of this server's: nothing is announced,
  and the same name may be made anew beside it. Its records stay in the store, for `pubsub server export --quarantined`.
* *Held back*. Something shows that this store is a copy from before what it promised: a client has a position beyond a
  log's end, or lacks nothing before a put that this log has a gap before. The topic stays announced, so that nobody
  makes it anew elsewhere, and every request is answered `unavailable`, until `pubsub server restored` says that this
  copy is all there is. Where a proxy knows the whole store to be older than it was, all of it is held back.
"""

from __future__ import annotations

from pubsub.protocol.messages import Outcome
from pubsub.server.moves.moves import Moves
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.loaded import Aside
from pubsub.server.topic.notes import HELD, STALE, STALE_CHANGE
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.retention import Retention


class Quarantine:
    """Sets aside and holds back what one server has and must not serve.

    Args:
        state: the server's; it says what is held back.
        retention, moves: stopped for what is not served.
    """

    def __init__(self, state: State, retention: Retention, moves: Moves) -> None:
        self._state, self._retention, self._moves = state, retention, moves

    def set_aside(self, topic: Topic, reason: str, now: float) -> None:
        """A topic that was given up here: it is this server's no more, and kept."""
        state = self._state
        stamp = state.stamps.reading(now)
        self._stop(topic.name)
        self.release(topic.name)
        state.remove(topic.name)
        state.uncommitted.rows.append(c.TopicSetAside(topic.number, reason, stamp))
        state.announce(topic.name, "")
        state.uncommitted.keep(state, "aside")
        aside = [*state.aside, Aside(topic.name, topic.open.id, reason, stamp)]
        state.aside = sorted(aside, key=lambda one: (one.stamp, one.topic))
        state.counters["topics_set_aside"] += 1

    def hold_back(self, topic: Topic, reason: str) -> None:
        """Something shows that a topic is an older copy of itself."""
        state = self._state
        if topic.name in state.held:
            return
        self._stop(topic.name)
        state.uncommitted.keep_item(state.held, topic.name)
        state.held[topic.name] = reason
        state.uncommitted.touched.add(topic.name)
        state.uncommitted.rows.append(c.NoteKept(HELD + topic.name, reason))
        state.counters["topics_held_back"] += 1

    def damaged(self, topic: Topic, reason: str) -> None:
        """A damaged page keeps a topic from being served; other topics are.

        Nothing is stored: the next start tries again, with what was put back or found readable by then.
        """
        state = self._state
        state.damaged.add(topic.name)
        if topic.name in state.held:
            return
        self._stop(topic.name)
        state.held[topic.name] = reason
        state.counters["topics_held_back"] += 1

    def hold_all_back(self, reason: str, change: int) -> None:
        """A proxy says that this store is an older copy of itself.

        Args:
            change: the change number that the proxy knows of.
        """
        state = self._state
        if state.stale:
            return
        state.uncommitted.keep(state, "stale")
        state.stale = reason
        for name in state.topics:
            self._stop(name)
        state.uncommitted.rows += [c.NoteKept(STALE, reason), c.NoteKept(STALE_CHANGE, change)]

    def release(self, topic: str) -> None:
        """A topic is held back no more."""
        state = self._state
        if topic in state.held:
            state.uncommitted.keep_item(state.held, topic)
            del state.held[topic]
            state.uncommitted.rows.append(c.NoteKept(HELD + topic, None))

    def _stop(self, name: str) -> None:
        """Have nothing go on with a topic."""
        state = self._state
        state.long_polls.end_all(name, Outcome.UNAVAILABLE)
        self._retention.forget(name)
        self._moves.stop(name)
