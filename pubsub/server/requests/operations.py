"""What operators have a server do: OPERATE, action by action (docs/operations.md says what each gives up).

    move         topic, server, address      offer the topic to that server: what follows is a merge like any other
    drain        stop                        be given no new topic, until told otherwise, also after a restart
    unsubscribe  topic, subscriber           end a subscription whose client is not coming back
    abandoned    topic, server, address, log another server's holding was given up (`givenup`)

Each is answered at once, and a repeat finds it done: whether a topic has arrived elsewhere is seen in the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pubsub.protocol.messages import Operate, Outcome
from pubsub.protocol.names import is_endpoint
from pubsub.server.state.replies import Origin
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import DRAINING
from pubsub.server.topic.topic import Entry

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

_COUNT: Final = (1 << 22) - 1
"""The part of a client's number that counts, below the milliseconds (docs/architecture.md, *Numbers*)."""


class Operations:
    """What one server was told by operators.

    Args:
        core: the server.
        notes: what its store remembers.
    """

    def __init__(self, core: ServerCore, notes: Mapping[str, object]) -> None:
        self._core = core
        self._actions: dict[str, Callable[[Origin, Operate, float], None]] = {
            "move": self._move,
            "drain": self._drain,
            "unsubscribe": self._unsubscribe,
            "abandoned": core.given_up.abandoned,
        }
        core.links.draining = self._draining_stored = bool(notes.get(DRAINING))

    def handle(self, origin: Origin, asked: Operate, now: float) -> None:
        """OPERATE: do it, and answer."""
        action = self._actions.get(asked.action)
        if action is None:
            self._core.refuse(origin, f"{asked.action} is no action of a server", now)
        else:
            action(origin, asked, now)

    def committed(self) -> None:
        """What was told is durable."""
        self._draining_stored = self._core.links.draining

    def reverted(self) -> None:
        """The loop was taken back."""
        self._core.links.draining = self._draining_stored

    def _move(self, origin: Origin, asked: Operate, now: float) -> None:
        core = self._core
        topic = core.topics.get(asked.topic)
        if not is_endpoint(asked.address):
            core.refuse(origin, "no address to move it to", now)
        elif topic is None:
            core.answer(origin, Outcome.UNKNOWN, reason="topic_is_not_held")
        elif core.quarantine.holds(asked.topic):
            core.answer(origin, Outcome.REFUSED, reason="quarantined")
        elif topic.frozen:
            same = topic.frozen == asked.address
            core.moves.giving.ask(topic.name, asked.address)
            core.answer(origin, Outcome.SUCCESS if same else Outcome.MOVED, reason=topic.frozen)
        elif asked.address == core.links.address:
            core.answer(origin, Outcome.SUCCESS, reason="it_is_here")
        elif topic.others:
            core.answer(origin, Outcome.REFUSED, reason=f"contested_with_{','.join(sorted(topic.others))}")
        else:
            gift = core.moves.giving.gifts.get(topic.name)
            begun = gift is None and core.moves.giving.offer(topic.name, topic.open.id, asked.address, now)
            if begun or (gift is not None and gift.address == asked.address):
                core.counters["offers"] += begun
                core.answer(origin, Outcome.SUCCESS)
            else:
                core.answer(origin, Outcome.BUSY, reason="other_topics_are_on_their_way")

    def _drain(self, origin: Origin, asked: Operate, now: float) -> None:
        core = self._core
        draining = not asked.stop
        if core.links.draining != draining:
            core.links.draining = draining
            core.marks.rows.append(c.NoteKept(DRAINING, 1 if draining else None))
            core.links.announce_all(now)
        core.answer(origin, Outcome.SUCCESS)

    def _unsubscribe(self, origin: Origin, asked: Operate, now: float) -> None:
        core = self._core
        topic = core.topics.get(asked.topic)
        entry = topic.entries.get(asked.subscriber) if topic else None
        if topic is None or entry is None:
            core.answer(origin, Outcome.UNKNOWN, reason="subscriber" if topic else "topic_is_not_held")
            return
        if topic.frozen:
            core.answer(origin, Outcome.MOVED, reason=topic.frozen)
            return
        if entry.on:
            _end(entry)
            core.marks.entry(topic.name, asked.subscriber)
            core.gets.end_outdated_poll(topic.name, asked.subscriber)
            core.retention.look_at(topic.name)
            core.counters["subscriptions ended"] += 1
        core.answer(origin, Outcome.SUCCESS, number=entry.number)


def _end(entry: Entry) -> None:
    """End a subscription, so that neither its own requests nor a join bring it back.

    Its number becomes one that its client has not used yet and will not use: the last of the same millisecond. So a
    GET that names the old one is answered `superseded`, and a subscription made later is higher.
    """
    entry.number = max(entry.number + 1, entry.number | _COUNT)
    entry.on, entry.legs = False, ()
