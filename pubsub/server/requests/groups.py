"""Consumer groups: WORK, and UNSUBSCRIBE of a group (docs/explanation/groups.md).

A WORK is kept until this loop's puts are in the store, since it may hand out any of them. Its changes are then a commit
of their own, and its answer leaves after that commit (GR2). A group is made while this server is the topic's sole
owner, and its first WORK asks for that again. So no two holders of a topic have one group at work (GR12).

    UNSUBSCRIBE  in doubt → refused, unless forced          otherwise → ended
    WORK         another number of the group → superseded, or unknown
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pubsub.base.limits import MEMBERS_MAX
from pubsub.errors import StoreDamaged
from pubsub.protocol.groups import Describe, Work
from pubsub.protocol.groups import Group as Action
from pubsub.protocol.messages import Outcome, Subscribe, Unsubscribe
from pubsub.server.groups.activity import Poll, ranges_of
from pubsub.server.groups.handing import answer, hand, room_of
from pubsub.server.groups.memory import Memory
from pubsub.server.groups.settling import note_database, settle, settled_key, to_look_up
from pubsub.server.groups.work import apply_work, finish
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import Admission
from pubsub.server.requests.group_operations import GroupOperations
from pubsub.server.requests.group_subscriptions import GroupSubscriptions
from pubsub.server.requests.subscriptions import Subscriptions
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.group import Group, Key, Member
from pubsub.server.topic.group_parts import close_part, enter_group
from pubsub.server.topic.group_rows import GroupEmptied
from pubsub.server.topic.topic import Topic

KEPT_MAX: Final = 10_000
"""Requests that wait for this loop's commit; a further one is answered `busy`."""

SLOT_SECONDS: Final = 0.25
"""Messages that wait for long are answered in slots of this length, so that one loop serves many idle members."""

GIVEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes handed out in one loop; further members are served in the next one."""


Kept = Work | Describe | Action | Unsubscribe


class Groups:
    """The consumer groups of one server's topics.

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
        self._sole_owner, self._admission = sole_owner, admission
        self._joining = GroupSubscriptions(state, memory, sole_owner, admission, subscriptions)
        self._kept: list[tuple[Origin, Kept, bool]] = []
        self._operations = GroupOperations(state, memory, self.end)
        self._given_bytes = self._turn = 0

    # SUBSCRIBE and UNSUBSCRIBE

    def subscribe(self, origin: Origin, request: Subscribe | Unsubscribe, now: float, sole_owner: bool = False) -> None:
        """Process SUBSCRIBE with a group, and keep UNSUBSCRIBE.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        if isinstance(request, Unsubscribe):
            self.keep(origin, request, sole_owner)
        else:
            self._joining.subscribe(origin, request, now, sole_owner)

    def _unsubscribe(self, origin: Origin, request: Unsubscribe, now: float, sole_owner: bool) -> None:
        """Process UNSUBSCRIBE with a group: it ends for all. Only a sole owner knows that there is no such group."""
        state, topic = self._state, self._state.topics.get(request.topic)
        group = topic.groups.get(request.name) if topic else None
        if not request.number:
            state.replies.refuse(origin, "the number must not be 0")
        elif group is None and not sole_owner:
            self._sole_owner.park_or_reject(origin, request)
        elif topic is None or group is None or not group.row.on:
            number = group.row.number if group is not None else 0
            state.replies.answer(origin, Outcome.SUCCESS, number=number, log=topic.open.id if topic else "")
        elif request.number <= group.row.number:
            state.replies.answer(origin, Outcome.SUPERSEDED, number=group.row.number, log=topic.open.id)
        else:
            self.end(origin, topic, group, request.number, now, force=bool(request.force))

    def end(self, origin: Origin, topic: Topic, group: Group, number: int, now: float, *, force: bool) -> None:
        """End a group, unless something is in doubt, and answer.

        Args:
            number: above the group's.
            force: True: also if something is in doubt.
        """
        state, activity = self._state, self._memory.of(topic, group, now)
        silent = [
            key
            for key, member in group.members.items()
            if member.held and not activity.is_heard(key, now, state.settings.member_liveness_seconds)
        ]
        if silent and not force:
            state.replies.answer(
                origin, Outcome.REFUSED, reason="in_doubt", body=self._memory.in_doubt(topic, group, now)
            )
            return
        for poll in list(activity.polls.values()):
            state.replies.answer(poll.origin, Outcome.SUPERSEDED, reason="the_group_was_ended", number=number)
        close(topic, group, number)
        self._memory.forget(topic.name, group.name)
        state.measure(topic)
        state.counters["groups_ended"] += 1
        state.replies.answer(origin, Outcome.SUCCESS, number=number, log=topic.open.id)

    # WORK

    def keep(self, origin: Origin, request: Kept, sole_owner: bool = False) -> None:
        """Keep a request until this loop's changes are in the store."""
        if len(self._kept) >= KEPT_MAX:
            self._state.replies.answer(origin, Outcome.BUSY, reason="too_many_requests_of_groups")
        else:
            self._kept.append((origin, request, sole_owner))

    def has_ready(self) -> bool:
        """Return True if `deliver` has something to do."""
        return bool(self._kept) or self._memory.has_ready()

    def deliver(self, now: float) -> None:
        """Process the requests of this loop, and hand out, after this loop's puts are in the store."""
        kept, self._kept = self._kept, []
        self._given_bytes = 0
        self._turn += 1
        for name in self._memory.watch(now):
            self._damaged(name)
        for origin, request, sole_owner in kept:
            try:
                self._handle(origin, request, now, sole_owner)
            except StoreDamaged:
                self._damaged(request.topic)
                self._state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here")
        for topic, group in self._memory.ready():
            try:
                self._serve(topic, group, now)
            except StoreDamaged:
                self._damaged(topic.name)

    def _damaged(self, name: str) -> None:
        topic = self._state.topics.get(name)
        if topic is not None:
            self._state.found_damaged(topic)

    def _handle(self, origin: Origin, request: Kept, now: float, sole_owner: bool) -> None:
        if self._admission.rejects(origin, request.topic):  # The topic may have been frozen in this loop.
            return
        if isinstance(request, Work):
            self._work(origin, request, now, sole_owner)
        elif isinstance(request, Unsubscribe):
            self._unsubscribe(origin, request, now, sole_owner)
        else:
            self._operations.handle(origin, request, now)

    def _work(self, origin: Origin, work: Work, now: float, sole_owner: bool) -> None:
        """Process a WORK, and answer it or let it wait."""
        topic = self._state.topics.get(work.topic)
        group = topic.groups.get(work.group) if topic else None
        if topic is None or group is None or not self._is_current(origin, topic, group, work):
            if topic is None or group is None:
                self._unknown(origin, topic)
            return
        if not group.fits((*work.say.done, *work.say.keep, *work.say.offered, *work.say.claim)):
            self._state.replies.refuse(origin, "the group is keyed" if group.keyed else "the group is shared")
            return
        if not group.row.used:
            if not sole_owner:
                self._sole_owner.park_or_reject(origin, work)
                return
            group.set(used=True)
            topic.dirty.group(topic.name, group.name)
        self._hear(origin, topic, group, work, now)

    def _unknown(self, origin: Origin, topic: Topic | None) -> None:
        facts = {"reason": "topic"} if topic is None else {"reason": "group", "log": topic.open.id}
        self._state.replies.answer(origin, Outcome.UNKNOWN, **facts)

    def _is_current(self, origin: Origin, topic: Topic, group: Group, work: Work) -> bool:
        """Return True if a WORK is for this group; otherwise answer it."""
        row, replies = group.row, self._state.replies
        if work.subscription > row.number:
            self._unknown(origin, topic)
        elif not row.on:
            self._state.counters["group_ranges_done_after_end"] += len(work.say.done)
            replies.answer(
                origin, Outcome.SUPERSEDED, reason="the_group_was_ended", number=row.number, log=topic.open.id
            )
        elif work.subscription < row.number:
            replies.answer(
                origin, Outcome.SUPERSEDED, reason="the_group_was_made_again", number=row.number, log=topic.open.id
            )
        else:
            return True
        return False

    def _hear(self, origin: Origin, topic: Topic, group: Group, work: Work, now: float) -> None:
        """Process a WORK for this group."""
        state, key = self._state, (work.sender, work.store)
        if work.settles:
            self._settle(origin, topic, group, work, now)
            return
        context = self._memory.context(topic, group, now)
        member, activity = group.members.get(key), context.activity
        if member is not None and (work.number < member.number or work.epoch < member.epoch):
            finish(context, key, work.say.done)  # It counts however late it comes (GR4 and GR19).
            facts: dict[str, object] = {"number": member.number, "epoch": member.epoch, "log": topic.open.id}
            late = "opened_again" if work.epoch < member.epoch else "a_later_message_came"
            state.replies.answer(origin, Outcome.SUPERSEDED, reason=late, **facts)
            return
        if member is None and not self._memory.make_room(topic, group, now, MEMBERS_MAX):
            state.replies.answer(origin, Outcome.FULL, reason="members_max", log=topic.open.id)
            return
        activity.heard[key] = now
        named = ranges_of((*work.say.keep, *work.say.offered, *work.say.claim))
        waiting = activity.polls.get(key)
        if member is not None and work.number == member.number:
            finish(context, key, work.say.done)
            if waiting is not None and waiting.work.number == work.number:
                waiting.origin = origin
                return
            self._answer(Poll(origin, work, named, now, now, self._turn), topic, group, now)
            return
        activity.polls.pop(key, None)
        apply_work(context, key, work.say, work.number, work.epoch, cut=bool(work.cut), leave=bool(work.leave))
        member = group.members[key]
        member.heard = context.stamp
        note_database(context, key, work.database)
        if not member.held:
            activity.held_since.pop(key, None)
        wait = min(work.wait_ms / 1000, state.settings.wait_seconds_max) if work.records_max else 0.0
        poll = Poll(origin, work, named, now, expiry(now, wait), self._turn)
        if work.leave:
            activity.forget(key)
            self._answer(poll, topic, group, now)
            return
        poll.changed = bool(work.say.claim) or not self._has_all(context.group, key, poll)
        activity.polls[key] = poll
        activity.look = activity.look or poll.changed
        if poll.expires <= now:
            activity.expired.append(key)
        self._memory.waits(topic.name, group.name, key, poll.expires)

    def _settle(self, origin: Origin, topic: Topic, group: Group, work: Work, now: float) -> None:
        """Process a WORK about another member, which the sender has looked up in their database."""
        context, state = self._memory.context(topic, group, now), self._state
        heard = context.activity.is_heard(settled_key(work), now, state.settings.member_liveness_seconds)
        refused, records = settle(context, work, heard=heard)
        self._memory.look(topic.name, group.name)
        if refused:
            state.replies.answer(origin, Outcome.SUPERSEDED, reason=refused, log=topic.open.id)
            return
        state.counters["group_records_settled"] += records
        state.replies.answer(origin, Outcome.SUCCESS, records=records, log=topic.open.id)

    def _has_all(self, group: Group, key: Key, poll: Poll) -> bool:
        """Return True if a member holds, or is offered, all that its message goes on with."""
        member, say = group.members[key], poll.work.say
        offer = self._memory.offer(poll.work.topic, group.name, key)
        for one in say.keep:
            held = member.held.get((one.part or 0, one.log))
            if held is None or not held.covers(one.low, one.high):
                return False
        for one in say.offered:
            lane = one.part or 0, one.log
            if offer is None:
                return False
            if not (offer.counts.get(lane[0]) if group.keyed else lane in offer.ranges):
                return False
            if not group.keyed and not offer.ranges[lane].covers(one.low, one.high):
                return False
        return True

    def _serve(self, topic: Topic, group: Group, now: float) -> None:
        """Hand out to the members that wait, the longest waiting one first."""
        state = self._state
        context = self._memory.context(topic, group, now)
        activity = context.activity
        polls, expired = activity.polls, activity.expired
        activity.expired = []
        if not activity.look and self._memory.is_empty(
            context
        ):  # Usual while many members wait: each would get nothing.
            turns = [(key, poll) for key in dict.fromkeys(expired) if (poll := polls.get(key)) and poll.expires <= now]
        else:
            turns = list(polls.items())
        activity.look = False
        self._memory.extend(context)
        hungry = sum(1 for _, poll in turns if poll.work.records_max)
        for key, poll in turns:
            if self._given_bytes >= GIVEN_BYTES_MAX:
                activity.look = True
                return
            if not self._is_last(group, key, poll):
                del activity.polls[key]
                continue
            reason = ""
            if poll.work.records_max:
                share = self._memory.share(context, hungry)
                room, reason = room_of(context, key, poll, share, state.settings.answer_bytes_max)
                blind = now - poll.since > state.settings.member_liveness_seconds
                room.waited = poll.turn != self._turn
                room.claim = room.claim and not room.waited
                hand(context, key, room, hungry)
                hungry -= 1
                self._given_bytes += room.given_bytes
                self._memory.found(room.damaged)
                poll.changed = poll.changed or room.ended
                if room.given and key in activity.offers:
                    activity.offers[key].blind = blind
            else:
                room = None
            if poll.changed or poll.expires <= now or (room is not None and room.given):
                del activity.polls[key]
                self._answer(poll, topic, group, now, reason)

    @staticmethod
    def _is_last(group: Group, key: Key, poll: Poll) -> bool:
        """Return True if a WORK that waits is the last one of its member (GR5).

        A merge, or an undone loop, may have brought another state of the group.
        """
        member = group.members.setdefault(key, Member(poll.work.number, poll.work.epoch))
        return member.number == poll.work.number

    def _answer(self, poll: Poll, topic: Topic, group: Group, now: float, reason: str = "") -> None:
        context, key = self._memory.context(topic, group, now), (poll.work.sender, poll.work.store)
        body, records, checksum, damaged = answer(context, key, poll.named)
        self._memory.found(damaged)
        if not poll.work.leave:
            context.activity.heard[key] = now
        self._state.counters["delivered"] += records
        self._state.replies.answer(
            poll.origin,
            Outcome.SUCCESS,
            reason=reason,
            number=poll.work.number,
            records=records,
            checksum=checksum,
            log=topic.open.id,
            silent="" if poll.work.leave else to_look_up(context, key),
            body=body,
        )


def expiry(now: float, wait: float) -> float:
    """Return the time at which a message that may wait this long is answered: a long wait ends with an earlier slot.

    Messages that were answered together come again together. So members that began at many times share slots for good.
    """
    return now + wait if wait < 4 * SLOT_SECONDS else (now + wait) // SLOT_SECONDS * SLOT_SECONDS


def close(topic: Topic, group: Group, number: int) -> None:
    """End a group under this number: nothing of it is left but the number."""
    for part in group.parts:
        close_part(topic, group.key(part), number)
    ended = Group(group.name, replace(group.row, number=number, on=False, order=()))
    ended.changed = True
    topic.dirty.row(topic.name, GroupEmptied(topic.number, group.name))
    enter_group(topic, ended)
