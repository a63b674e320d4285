"""What must not be served: topics that were given up here, and copies that are older than what was promised.

Two kinds, both durable, both shown in the report, neither ever joined into anything:

* *Set aside*. Operators gave this server's holding of a topic up while it was away, and the others went on without it.
  A proxy says so when the topic is announced again. It is then no topic of this server's: nothing is announced,
  and the same name may be made anew beside it. Its records stay in the store, for `pubsub server export --quarantined`.
* *Held back*. Something shows that this store is a copy from before what it promised: a client has a position beyond a
  log's end, or lacks nothing before a put that this log has a gap before. The topic stays announced, so that nobody
  makes it anew elsewhere, and every request is answered `unavailable`, until `pubsub server restored` says that this
  copy is all there is. Where a proxy knows the whole store to be older than it was, all of it is held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pubsub.protocol.messages import Get, Outcome, Publish, Put, Read, Stage, Subscribe, Unsubscribe
from pubsub.server.state.replies import Origin
from pubsub.server.topic import changes as c
from pubsub.server.topic.loaded import Aside
from pubsub.server.topic.notes import ACCEPTED, HELD, STALE, STALE_CHANGE
from pubsub.server.topic.topic import Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

Request = Subscribe | Unsubscribe | Get | Read | Put | Stage | Publish


class Quarantine:
    """What one server has and does not serve.

    Args:
        core: the server.
        aside: what its store has set aside.
        notes: what its store remembers.

    Attributes:
        held: topics that are held back, and why.
        stale: why the whole store is held back, "" where it is not.
        accepted: whether this store is a copy that was said to be all there is: what it lacks is gone.
    """

    def __init__(self, core: ServerCore, aside: Iterable[Aside], notes: Mapping[str, object]) -> None:
        self._core = core
        self.aside = list(aside)
        self.stale = str(notes.get(STALE) or "")
        self.held = {name.removeprefix(HELD): str(why) for name, why in notes.items() if name.startswith(HELD)}
        self.accepted = bool(notes.get(ACCEPTED))
        self._stored = self._state()

    def _state(self) -> tuple[list[Aside], str, dict[str, str]]:
        return list(self.aside), self.stale, dict(self.held)

    def committed(self) -> None:
        """What was decided is durable."""
        if (len(self.aside), self.stale, len(self.held)) != (
            len(self._stored[0]),
            self._stored[1],
            len(self._stored[2]),
        ):
            self._stored = self._state()

    def reverted(self) -> None:
        """The loop was taken back: what showed it will show it again."""
        aside, self.stale, held = self._stored
        self.aside, self.held = list(aside), dict(held)

    def turns_away(self, origin: Origin, request: Request) -> bool:
        """Whether a request is for what is not served; it is answered then."""
        if not (self.held or self.stale):
            return False
        why = self.stale or self.held.get(request.topic)
        if not why:
            return False
        self._core.answer(origin, Outcome.UNAVAILABLE, reason=_reason(why, bool(self.stale)))
        return True

    def holds(self, topic: str) -> bool:
        """Whether a topic is held back."""
        return bool(self.stale) or topic in self.held

    def set_aside(self, topic: Topic, reason: str, now: float) -> None:
        """A topic that was given up here: it is this server's no more, and kept."""
        core = self._core
        stamp = core.stamps.reading(now)
        self._stop(topic.name)
        self.release(topic.name)
        del core.topics[topic.name]
        core.marks.gone(topic.name)
        core.marks.rows.append(c.TopicSetAside(topic.number, reason, stamp))
        core.announce(topic.name, "")
        self.aside.append(Aside(topic.name, topic.open.id, reason, stamp))
        self.aside.sort(key=lambda one: (one.stamp, one.topic))
        core.counters["topics set aside"] += 1

    def hold_back(self, topic: Topic, reason: str) -> None:
        """Something shows that a topic is an older copy of itself."""
        core = self._core
        if topic.name in self.held:
            return
        self._stop(topic.name)
        self.held[topic.name] = reason
        core.marks.touched.add(topic.name)
        core.marks.rows.append(c.NoteKept(HELD + topic.name, reason))
        core.counters["topics held back"] += 1

    def damaged(self, topic: Topic, reason: str) -> None:
        """A damaged page keeps a topic from being served; other topics are.

        Nothing is stored: the next start tries again, with what was put back or found readable by then.
        """
        core = self._core
        core.damaged.add(topic.name)
        if topic.name in self.held:
            return
        self._stop(topic.name)
        self.held[topic.name] = reason
        self._stored[2][topic.name] = reason
        core.counters["topics held back"] += 1

    def hold_all_back(self, reason: str, change: int) -> None:
        """A proxy says that this store is an older copy of itself.

        Args:
            change: the change number that the proxy knows of.
        """
        if self.stale:
            return
        self.stale = reason
        for name in self._core.topics:
            self._stop(name)
        self._core.marks.rows += [c.NoteKept(STALE, reason), c.NoteKept(STALE_CHANGE, change)]

    def release(self, topic: str) -> None:
        """A topic is held back no more."""
        if self.held.pop(topic, None) is not None:
            self._core.marks.rows.append(c.NoteKept(HELD + topic, None))

    def _stop(self, name: str) -> None:
        """Have nothing go on with a topic."""
        core = self._core
        core.gets.end_polls(name, Outcome.UNAVAILABLE)
        core.retention.forget(name)
        core.moves.stop(name)


def _reason(why: str, everything: bool) -> str:
    what = "this_server_runs_on_an_older_copy_of_its_store" if everything else "quarantined_here"
    return f"{what}:_{why.replace(' ', '_')}"[:300]
