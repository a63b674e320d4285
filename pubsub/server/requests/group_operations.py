"""Operators' actions on consumer groups, and looks at them: GROUP and DESCRIBE (docs/explanation/groups.md).

    release   give up the claims of a member           the member is heard → refused, unless forced
    redrive   let dead letters wait again                 drop: delete them
    end       end the group                               in doubt → refused, unless forced
    resume    let a suspended group go on                 skip: pass over all waiting records
    change    other values                                shared → keyed only while it holds nothing

Each action names the number of the group, and a release that of the member. So a late repeat changes nothing later.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from pubsub.base.limits import LOST_SECONDS_MIN
from pubsub.errors import DecodeError
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, encode_values, split_places
from pubsub.protocol.groups import Describe
from pubsub.protocol.groups import Group as Action
from pubsub.protocol.messages import Outcome
from pubsub.server.groups import letters
from pubsub.server.groups.facts import dead_of, group_facts, members_of
from pubsub.server.groups.memory import Memory
from pubsub.server.requests.group_values import PARTS
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.consumers import Readers
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.facts import Fact
from pubsub.server.topic.group import WAITING, Group
from pubsub.server.topic.group_parts import close_part
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

ITEMS_MAX: Final = 1_000
"""Most members, or dead letters, in one answer."""


class GroupOperations:
    """The operators' requests about groups to one server.

    Args:
        memory: the memory of groups.
        end: ends a group, and answers.
    """

    def __init__(self, state: State, memory: Memory, end: Callable[..., None]) -> None:
        self._state, self._memory, self._end_group = state, memory, end
        self._actions: dict[str, Callable[[Origin, Action, Topic, Group, float], None]] = {
            "release": self._release,
            "redrive": self._redrive,
            "drop": self._drop,
            "end": self._end,
            "resume": self._resume,
            "change": self._change,
        }

    def handle(self, origin: Origin, request: Action | Describe, now: float) -> None:
        """Carry out a request, and answer. The store has all that is handed out by now."""
        topic = self._state.topics.get(request.topic)
        if topic is None:
            self._state.replies.answer(origin, Outcome.UNKNOWN, reason="topic")
            return
        group = topic.groups.get(request.name)
        missing = group is None or not group.row.on
        if isinstance(request, Describe):
            if missing and (request.name or request.what != "groups"):
                self._state.replies.answer(origin, Outcome.UNKNOWN, reason="group", log=topic.open.id)
            else:
                self._describe(origin, request, topic, group, now)
            return
        self._act(origin, request, topic, group, now)

    def _act(self, origin: Origin, request: Action, topic: Topic, group: Group | None, now: float) -> None:
        replies, act = self._state.replies, self._actions.get(request.action)
        if act is None:
            replies.refuse(origin, f"a group has no action {request.action}")
        elif group is None:
            replies.answer(origin, Outcome.UNKNOWN, reason="group", log=topic.open.id)
        elif _is_repeat(request, group):
            self._done(origin, topic, 0, encode_values(group.values))
        elif request.subscription != group.row.number or not group.row.on:
            replies.answer(origin, Outcome.SUPERSEDED, number=group.row.number, log=topic.open.id)
        else:
            act(origin, request, topic, group, now)

    def _done(self, origin: Origin, topic: Topic, records: int, body: bytes = b"") -> None:
        self._state.replies.answer(origin, Outcome.SUCCESS, records=records, log=topic.open.id, body=body)

    def _release(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        key, replies = (request.member, request.store), self._state.replies
        member = group.members.get(key)
        activity = self._memory.of(topic, group, now)
        if member is None:
            replies.answer(origin, Outcome.UNKNOWN, reason="member", log=topic.open.id)
        elif member.number != request.number:
            replies.answer(origin, Outcome.SUPERSEDED, number=member.number, log=topic.open.id)
        elif activity.is_heard(key, now, self._state.settings.member_liveness_seconds) and not request.force:
            replies.answer(origin, Outcome.REFUSED, reason="the_member_is_heard", log=topic.open.id)
        else:
            records = letters.release(self._memory.context(topic, group, now), key, forget=bool(request.lost_disk))
            self._state.counters["group_records_released"] += records
            self._memory.look(topic.name, group.name)
            self._done(origin, topic, records)

    def _redrive(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        self._on_letters(origin, request, topic, group, now, letters.redrive)

    def _drop(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        self._on_letters(origin, request, topic, group, now, letters.drop)

    def _on_letters(
        self, origin: Origin, request: Action, topic: Topic, group: Group, now: float, act: Callable[..., int]
    ) -> None:
        try:
            places = split_places(request.places)
        except DecodeError as error:
            self._state.replies.refuse(origin, error.reason)
            return
        records = act(self._memory.context(topic, group, now), places)
        self._memory.look(topic.name, group.name)
        self._done(origin, topic, records)

    def _end(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        self._end_group(origin, topic, group, group.row.number + 1, now, force=bool(request.force))

    def _resume(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        """Let a suspended group go on (GR21)."""
        if not group.row.suspended:
            self._done(origin, topic, 0)
            return
        context, records = self._memory.context(topic, group, now), 0
        for part in group.parts:
            for span in context.backlog.spans(part):
                log = topic.logs.get(span.log)
                high = (
                    0
                    if log is None
                    else log.end - log.unknown
                    if span.high is None
                    else min(span.high, log.end - log.unknown)
                )
                if span.low >= high:
                    continue
                records += context.count(part, span.log, span.low, high)
                if not request.skip:
                    group.facts.change(part, span.log, span.low, high, _doubtful)
            if request.skip:
                context.backlog.pass_over(part, [(log.id, 1, log.end) for log in topic.logs.values()])
        for member in () if request.skip else group.members.values():
            for part, log_id, low, high in list(member.pieces()):
                group.facts.change(part, log_id, low, high, _doubtful)
        for row in list(group.copies.values()):
            if not request.skip:
                group.facts.change(row.part, row.log, row.offset, row.offset + 1, _doubtful)
            elif row.state == WAITING:
                context.backlog.drop_copy(row.log, row.offset)
            records += row.state == WAITING
        group.set(suspended=False)
        topic.note_all()
        self._memory.look(topic.name, group.name)
        self._state.counters["groups_resumed"] += 1
        self._done(origin, topic, records)

    def _change(self, origin: Origin, request: Action, topic: Topic, group: Group, now: float) -> None:
        replies, row = self._state.replies, group.row
        if 0 < request.lost_ms < LOST_SECONDS_MIN * 1000:
            replies.refuse(origin, f"a group gives up claims after {LOST_SECONDS_MIN} s or more")
            return
        if (request.mode == SHARED and group.keyed) or (request.parts and group.keyed and request.parts != row.parts):
            replies.answer(origin, Outcome.REFUSED, reason="mode_differs", body=encode_values(group.values))
            return
        if request.mode == KEYED and not group.keyed:
            if group.facts or group.copies or any(member.held for member in group.members.values()):
                replies.answer(origin, Outcome.REFUSED, reason="not_empty", body=encode_values(group.values))
                return
            self._make_keyed(topic, group, request.parts or PARTS, now)
        group.set(
            redeliver=row.redeliver if not request.on_lost else request.on_lost == REDELIVER,
            lost_ms=request.lost_ms or row.lost_ms,
            attempts=request.attempts or row.attempts,
        )
        topic.dirty.group(topic.name, group.name)
        self._done(origin, topic, 0, encode_values(group.values))

    def _make_keyed(self, topic: Topic, group: Group, parts: int, now: float) -> None:
        """Give each part the waiting records. The shared group's own subscription ends.

        The number is a new one, so that members do not take the ranges of parts for those of a shared group (GR30).
        """
        key, number = group.key(0), group.row.number + 1
        shared = topic.subscriptions[key].cursor
        backlog = shared.backlog
        for poll in self._memory.of(topic, group, now).polls.values():
            facts = {"reason": "the_group_was_made_again", "number": number, "log": topic.open.id}
            self._state.replies.answer(poll.origin, Outcome.SUPERSEDED, **facts)
        close_part(topic, key, group.row.number)
        group.set(parts=parts, number=number)
        for part in group.parts:
            cursor = Cursor(shared.since, shared.acknowledged, backlog)
            topic.enter(group.key(part), Subscription(number, True, cursor, Readers()))
        topic.note_all()
        self._memory.forget(topic.name, group.name)

    # Looks

    def _describe(self, origin: Origin, request: Describe, topic: Topic, group: Group | None, now: float) -> None:
        most = min(request.items_max or ITEMS_MAX, ITEMS_MAX)
        if request.what == "groups":
            some = [one for one in topic.groups.values() if one.row.on and request.name in ("", one.name)]
            facts: dict[str, Any] = {
                "groups": [group_facts(self._memory.context(topic, one, now), self._state) for one in some]
            }
        elif request.what == "members":
            assert group is not None
            facts = members_of(self._memory.context(topic, group, now), self._state, request.after, most)
        else:
            assert group is not None
            facts = dead_of(group, request.after, most)
        self._done(origin, topic, 0, json.dumps(facts, separators=(",", ":")).encode("ascii"))


def _is_repeat(request: Action, group: Group) -> bool:
    """Return True if a request has made the group keyed, which gave it the next number."""
    keyed = request.action == "change" and request.mode == KEYED and group.keyed and group.row.on
    return keyed and (request.subscription + 1, request.parts or PARTS) == (group.row.number, group.row.parts)


def _doubtful(fact: Fact) -> Fact:
    return fact._replace(doubtful=True)
