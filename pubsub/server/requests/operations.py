"""What operators have a server do: OPERATE, action by action (docs/operations.md says what each gives up).

    move         topic, server, address      offer the topic to that server: what follows is a merge like any other
    drain        stop                        be given no new topic, until told otherwise, also after a restart
    unsubscribe  topic, subscriber           end a subscription whose client is not coming back
    abandoned    topic, server, address, log another server's holding was given up (`recovery.abandoned`); only proxies
                                             say so, which see that nobody hears that server

Each is answered at once, and a repeat finds it done: whether a topic has arrived elsewhere is seen in the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pubsub.protocol.messages import Operate, Outcome
from pubsub.protocol.names import is_endpoint, may_be_one_server
from pubsub.server.moves.moves import Moves
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.recovery.abandoned import Abandoned
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import DRAINING
from pubsub.server.upkeep.retention import Retention


@dataclass(frozen=True, slots=True)
class Action:
    """One of them.

    Attributes:
        run: does it, and answers.
        address: whether it needs an address.
        topic: whether it needs a topic that is held here.
        proxies: whether only proxies may say it, of themselves.
    """

    run: Callable[[Origin, Operate, float], None]
    address: bool = False
    topic: bool = False
    proxies: bool = False


class Operations:
    """What one server was told by operators.

    Args:
        state: the server's.
        proxies, retention, moves, abandoned: what carries it out.
        notes: what the store remembers.
    """

    def __init__(
        self,
        state: State,
        proxies: Proxies,
        retention: Retention,
        moves: Moves,
        abandoned: Abandoned,
        notes: Mapping[str, object],
    ) -> None:
        self._state, self._proxies, self._retention, self._moves = state, proxies, retention, moves
        self.actions = {
            "move": Action(self._move, address=True, topic=True),
            "drain": Action(self._drain),
            "unsubscribe": Action(self._unsubscribe, topic=True),
            "abandoned": Action(abandoned.abandoned, proxies=True),
        }
        proxies.draining = bool(notes.get(DRAINING))

    def handle(self, origin: Origin, asked: Operate, now: float) -> None:
        """OPERATE: do it, and answer."""
        replies = self._state.replies
        action = self.actions.get(asked.action)
        if action is None:
            replies.refuse(origin, f"{asked.action} is no action of a server")
        elif action.proxies and origin.origin:
            replies.refuse(origin, f"{asked.action} is for proxies to say: pubsub topic abandon has them say it")
        elif action.address and not is_endpoint(asked.address):
            replies.refuse(origin, f"no address to {asked.action} it to")
        elif action.topic and asked.topic not in self._state.topics:
            replies.answer(origin, Outcome.UNKNOWN, reason="topic_is_not_held")
        else:
            action.run(origin, asked, now)

    def _move(self, origin: Origin, asked: Operate, now: float) -> None:
        state, giving = self._state, self._moves.giving
        topic = state.topics[asked.topic]
        if state.is_held_back(asked.topic):
            state.replies.answer(origin, Outcome.REFUSED, reason="quarantined")
        elif topic.frozen:
            same = may_be_one_server(topic.frozen, asked.address)
            giving.ask(topic.name, asked.address)
            state.replies.answer(origin, Outcome.SUCCESS if same else Outcome.MOVED, reason=topic.frozen)
        elif may_be_one_server(asked.address, self._proxies.address):
            state.replies.answer(origin, Outcome.SUCCESS, reason="it_is_here")
        elif topic.contested_by:
            state.replies.answer(
                origin, Outcome.REFUSED, reason=f"contested_with_{','.join(sorted(topic.contested_by))}"
            )
        else:
            gift = giving.gifts.get(topic.name)
            begun = gift is None and giving.offer(topic.name, topic.open.id, asked.address, now)
            if begun or (gift is not None and gift.address == asked.address):
                state.counters["offers"] += begun
                state.replies.answer(origin, Outcome.SUCCESS)
            else:
                state.replies.answer(origin, Outcome.BUSY, reason="other_topics_are_on_their_way")

    def _drain(self, origin: Origin, asked: Operate, now: float) -> None:
        draining = not asked.stop
        if self._proxies.draining != draining:
            self._state.uncommitted.keep(self._proxies, "draining")
            self._proxies.draining = draining
            self._state.uncommitted.rows.append(c.NoteKept(DRAINING, 1 if draining else None))
            self._proxies.announce_all(now)
        self._state.replies.answer(origin, Outcome.SUCCESS)

    def _unsubscribe(self, origin: Origin, asked: Operate, now: float) -> None:
        state = self._state
        topic = state.topics[asked.topic]
        subscription = topic.subscriptions.get(asked.subscriber)
        if subscription is None:
            state.replies.answer(origin, Outcome.UNKNOWN, reason="subscriber")
            return
        if topic.frozen:
            state.replies.answer(origin, Outcome.MOVED, reason=topic.frozen)
            return
        if subscription.on:
            topic.end(asked.subscriber)
            state.long_polls.end_outdated(topic.name, asked.subscriber, subscription)
            self._retention.look_at(topic.name)
            state.counters["subscriptions_ended"] += 1
        state.replies.answer(origin, Outcome.SUCCESS, number=subscription.number)
