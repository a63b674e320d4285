"""Operators' requests: OPERATE, by action (docs/operations.md lists the losses that each accepts).

    move         topic, server, address      offer the topic to that server; the rest is a merge like any other
    drain        stop                        get no new topics, until an operator stops that, also after a restart
    unsubscribe  topic, subscriber           end a subscription of a client that will not return
    abandoned    topic, server, address, log an operator abandoned another holder (`recovery.abandoned`); only proxies
                                             send this, since they know that the server is silent

Each action is answered at once, and a repeat finds it done. Reports show if a topic has arrived elsewhere.
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
    """One action.

    Attributes:
        run: carries out the action and answers.
        address: True if it needs an address.
        topic: True if it needs a topic that is held here.
        proxies: True if only proxies may send it, on their own.
    """

    run: Callable[[Origin, Operate, float], None]
    address: bool = False
    topic: bool = False
    proxies: bool = False


class Operations:
    """The operators' requests to one server.

    Args:
        proxies, retention, moves, abandoned: carry out the actions.
        notes: the facts in the server's store.
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
        """Carry out OPERATE, and answer."""
        replies = self._state.replies
        action = self.actions.get(asked.action)
        if action is None:
            replies.refuse(origin, f"a server has no action {asked.action}")
        elif action.proxies and origin.origin:
            replies.refuse(origin, f"only proxies may send {asked.action}: use pubsub topic abandon")
        elif action.address and not is_endpoint(asked.address):
            replies.refuse(origin, f"the address for {asked.action} is missing or invalid")
        elif action.topic and asked.topic not in self._state.topics:
            replies.answer(origin, Outcome.UNKNOWN, reason="topic_is_not_held")
        else:
            action.run(origin, asked, now)

    def _move(self, origin: Origin, asked: Operate, now: float) -> None:
        state, giving = self._state, self._moves.giving
        topic = state.topics[asked.topic]
        if state.is_held_back(asked.topic):
            state.replies.answer(origin, Outcome.REFUSED, reason="the_topic_is_held_back")
        elif topic.frozen:
            same = may_be_one_server(topic.frozen, asked.address)
            giving.ask(topic.name, asked.address)
            state.replies.answer(origin, Outcome.SUCCESS if same else Outcome.MOVED, reason=topic.frozen)
        elif may_be_one_server(asked.address, self._proxies.address):
            state.replies.answer(origin, Outcome.SUCCESS, reason="the_topic_is_here_already")
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
                state.replies.answer(origin, Outcome.BUSY, reason="other_transfers_are_under_way")

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
