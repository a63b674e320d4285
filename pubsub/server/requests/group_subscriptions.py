"""SUBSCRIBE with a consumer group: it makes the group, or joins it (docs/explanation/groups.md).

no group, or ended under a lower number → made, once this server is the sole owner
on → success with its number, or refused if the request names other values
ended under this number or a higher one → superseded
"""

from __future__ import annotations

from pubsub.base.limits import GROUP_NAMES_MAX, GROUPS_MAX, LOST_SECONDS_MIN
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, encode_values
from pubsub.protocol.messages import Outcome, Subscribe
from pubsub.protocol.names import LATEST, is_service_topic
from pubsub.server.groups.memory import Memory
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import Admission
from pubsub.server.requests.group_values import ATTEMPTS, LOST_MS, PARTS
from pubsub.server.requests.subscriptions import Subscriptions
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.consumers import Readers
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.group import Group, order_of
from pubsub.server.topic.group_parts import enter_group
from pubsub.server.topic.group_rows import GroupRow
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic


class GroupSubscriptions:
    """The making and joining of groups.

    Args:
        memory: the memory of groups.
        sole_owner: asks if this server is a topic's sole owner.
        admission: checks limits.
        subscriptions: finds where a group begins.
    """

    def __init__(
        self, state: State, memory: Memory, sole_owner: SoleOwner, admission: Admission, subscriptions: Subscriptions
    ) -> None:
        self._state, self._memory = state, memory
        self._sole_owner, self._admission, self._subscriptions = sole_owner, admission, subscriptions

    def subscribe(self, origin: Origin, request: Subscribe, now: float, sole_owner: bool = False) -> None:
        """Process SUBSCRIBE with a group.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state, topic = self._state, self._state.topics.get(request.topic)
        if refusal := _refusal(request):
            state.replies.refuse(origin, refusal)
            return
        group = topic.groups.get(request.name) if topic else None
        if topic is not None and group is not None and group.row.on:
            self._join(origin, topic, group, request)
            return
        if group is not None and request.number <= group.row.number:
            state.replies.answer(origin, Outcome.SUPERSEDED, number=group.row.number)
            return
        if rejection := self._rejection(topic, request):
            state.replies.answer(origin, Outcome.FULL, reason=rejection)
        elif not sole_owner:
            self._sole_owner.park_or_reject(origin, request)
        else:
            begin = self._subscriptions.begin(origin, request, request.start, now, sole_owner)
            if begin is not None:
                self._make(origin, *begin, request, now)

    def _rejection(self, topic: Topic | None, request: Subscribe) -> str:
        """Return the reason why no group is made; "" if it may be."""
        if self._state.full:
            return "disk"
        if topic is None:
            return self._admission.topic()
        if sum(group.row.on for group in topic.groups.values()) >= GROUPS_MAX:
            return "GROUPS_MAX"
        if request.name not in topic.groups and len(topic.groups) >= GROUP_NAMES_MAX:
            return "GROUP_NAMES_MAX"
        if is_service_topic(topic.name) and self._admission.is_served(topic):
            return "another_client_serves_this"
        return ""

    def _make(self, origin: Origin, topic: Topic, cursor: Cursor, request: Subscribe, now: float) -> None:
        state = self._state
        parts = (request.parts or PARTS) if request.group == KEYED else 0
        row = GroupRow(
            request.number,
            True,
            parts,
            request.on_lost == REDELIVER,
            request.lost_ms or LOST_MS,
            request.attempts or ATTEMPTS,
            state.stamps.reading(now),
            order=order_of(cursor.backlog),
        )
        group = Group(request.name, row)
        group.changed = True
        enter_group(topic, group)
        for part in group.parts:
            its = Cursor(cursor.since, cursor.acknowledged, cursor.backlog)
            topic.enter(group.key(part), Subscription(row.number, True, its, Readers()))
        self._memory.forget(topic.name, group.name)
        if request.start != LATEST:
            state.measure(topic)
        state.counters["groups_made"] += 1
        self._answer_values(origin, topic, group, Outcome.SUCCESS)

    def _join(self, origin: Origin, topic: Topic, group: Group, request: Subscribe) -> None:
        """Answer for a group that is on."""
        row = group.row
        differs = (
            ("mode_differs", (request.group == SHARED and row.parts > 0) or (request.group == KEYED and not row.parts)),
            ("parts_differs", request.parts > 0 and request.parts != row.parts),
            ("onlost_differs", request.on_lost != "" and (request.on_lost == REDELIVER) != row.redeliver),
            ("lost_differs", request.lost_ms > 0 and request.lost_ms != row.lost_ms),
            ("attempts_differs", request.attempts > 0 and request.attempts != row.attempts),
        )
        other = next((name for name, differ in differs if differ), "")
        outcome = Outcome.REFUSED if other else Outcome.SUCCESS
        self._answer_values(origin, topic, group, outcome, other)

    def _answer_values(self, origin: Origin, topic: Topic, group: Group, outcome: Outcome, reason: str = "") -> None:
        self._state.replies.answer(
            origin,
            outcome,
            reason=reason,
            number=group.row.number,
            log=topic.open.id,
            body=encode_values(group.values),
        )


def _refusal(request: Subscribe) -> str:
    """Return the reason why a SUBSCRIBE for a group contradicts itself; "" if it does not."""
    if not request.number:
        return "the number must not be 0"
    if not request.name:
        return "a group needs a name"
    if request.continues or request.pattern:
        return "a group neither continues nor has a pattern"
    if request.parts and request.group == SHARED:
        return "a shared group has no parts"
    if 0 < request.lost_ms < LOST_SECONDS_MIN * 1000:
        return f"a group gives up claims after {LOST_SECONDS_MIN} s or more"
    if is_service_topic(request.topic) and request.start != LATEST:
        return "a service's topic can only be received from its end"
    return ""
