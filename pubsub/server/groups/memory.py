"""The memory of all groups of a server: their activity by topic and name, and the due work.

Nothing here survives the process, and a loop that is undone forgets it for the topics that it touched. A topic without
groups has no entry, and costs no look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Outcome
from pubsub.server.groups.activity import Activity, Offer
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.index import PartIndex
from pubsub.server.groups.letters import copy_out, is_full, release
from pubsub.server.groups.settling import note_silent
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.group import Group, Key
from pubsub.server.topic.topic import Topic

LOOKS_A_LIVENESS: Final = 4
"""Looks for silent members in one liveness."""

IDLE_PARTS_SECONDS: Final = 10.0
"""Interval at which parts without records are moved to the end of the records looked at, so that they hold no log."""

COPIED_AT_ONCE: Final = 500
"""Records copied out of their logs in one look."""

HOLD_SECONDS: Final = 3600.0
"""Silence after which the records in doubt are copied out of their logs (GR20)."""

FORGET_SECONDS: Final = 3600.0
"""Time for which a member is remembered that has left and holds nothing."""

Name = tuple[str, str]
"""A topic and a group of it."""


class Memory:
    """The memory of groups.

    Args:
        trusts_ages: returns whether the clock is right enough for ages, at this monotonic time.
        now: monotonic seconds.
    """

    def __init__(self, state: State, trusts_ages: Callable[[float], bool], now: float) -> None:
        self._state, self._trusts_ages, self._started = state, trusts_ages, now
        self._activities: dict[Name, Activity] = {}
        self._indexes: dict[Name, PartIndex] = {}
        self._look: dict[Name, None] = {}
        self._expiries: list[tuple[float, Name, Key]] = []
        self._look_at = self._idle_at = float("inf")
        self._due = False
        polls = state.long_polls
        polls.also_appended, polls.also_merged, polls.also_ended = self.appended, self.merged, self.end_all
        if any(topic.groups for topic in state.topics.values()):
            self.begin(now)

    def begin(self, now: float) -> None:
        """Look for what is due from now on."""
        self._look_at = min(self._look_at, now + self._liveness / LOOKS_A_LIVENESS)
        self._idle_at = min(self._idle_at, now + IDLE_PARTS_SECONDS)

    @property
    def _liveness(self) -> float:
        return self._state.settings.member_liveness_seconds

    def of(self, topic: Topic, group: Group, now: float) -> Activity:
        """Return the activity of a group."""
        activity = self._activities.get((topic.name, group.name))
        if activity is None:
            activity = self._activities[topic.name, group.name] = Activity(now)
            self.begin(now)
        return activity

    def find(self, topic: str, group: str) -> Activity | None:
        """Return the activity of a group; None if there is none."""
        return self._activities.get((topic, group))

    def groups(self, most: int) -> Iterator[tuple[Topic, Group]]:
        """Yield the groups that were active, at most so many."""
        for topic, name in list(self._activities)[:most]:
            held = self._state.topics.get(topic)
            group = held.groups.get(name) if held is not None else None
            if held is not None and group is not None and group.row.on:
                yield held, group

    def offer(self, topic: str, group: str, key: Key) -> Offer | None:
        """Return the offer to a member."""
        return self._activities[topic, group].offers.get(key)

    def context(self, topic: Topic, group: Group, now: float) -> GroupContext:
        """Return the context of one step of a group."""
        state, name = self._state, (topic.name, group.name)
        activity, index = self.of(topic, group, now), None
        if group.keyed:
            index = self._indexes.get(name)
            if index is None or index.topic is not topic or index.parts != group.row.parts:
                index = PartIndex(topic, group.row.parts, state.reader, state.publishers.names)
                self._indexes[name] = index
        stamp = state.stamps.reading(now)
        age = topic.in_force.expire_age
        oldest = stamp - age if age is not None and self._trusts_ages(now) else 0
        names, repairs = state.publishers.names, state.ask_repair
        return GroupContext(
            topic, group, activity, state.reader, names, index, now, stamp, oldest, repairs, self._liveness
        )

    def forget(self, topic: str, group: str | None = None) -> None:
        """Forget the activity of a group, or of all groups of a topic."""
        for name in [name for name in self._activities if name[0] == topic and group in (None, name[1])]:
            del self._activities[name]
            self._indexes.pop(name, None)
            self._look.pop(name, None)

    # Looks

    def look(self, topic: str, group: str) -> None:
        """Serve a group in this loop."""
        self._look[topic, group] = None

    def waits(self, topic: str, group: str, key: Key, expires: float) -> None:
        """Note that a member's WORK waits until a time, and serve its group in this loop."""
        heappush(self._expiries, (expires, (topic, group), key))
        if len(self._expiries) > 64 + 4 * sum(len(activity.polls) for activity in self._activities.values()):
            self._expiries = [
                (poll.expires, name, key)
                for name, activity in self._activities.items()
                for key, poll in activity.polls.items()
            ]
            heapify(self._expiries)
        self.look(topic, group)

    def appended(self, topic: str) -> None:
        """Serve the groups of a topic, because it has something new."""
        held = self._state.topics.get(topic)
        for name in held.groups if held is not None else ():
            activity = self._activities.get((topic, name))
            if activity is not None and activity.polls:
                self._look[topic, name] = None

    def has_ready(self) -> bool:
        """Return True if a group is to be served, or looked at."""
        return bool(self._look) or self._due

    def ready(self) -> Iterator[tuple[Topic, Group]]:
        """Yield the groups that are to be served, each once."""
        look, self._look = self._look, {}
        for topic, name in look:
            held = self._state.topics.get(topic)
            group = held.groups.get(name) if held else None
            if held is None or group is None or not group.row.on or held.frozen:
                continue
            yield held, group
            activity = self._activities.get((topic, name))
            if activity is not None and activity.look and activity.polls:
                self._look[topic, name] = None

    def extend(self, context: GroupContext) -> None:
        """Find the parts of new records of a keyed group."""
        activity, index = context.activity, context.index
        if index is None:
            return
        first = activity.ready is None
        if activity.ready is None:
            activity.ready = dict.fromkeys(context.group.parts)
        for log in context.topic.logs.values():
            end, seen = log.end - log.unknown, activity.seen.get(log.id, 1)
            if not first and seen < end:
                for part in index.parts_between(log, seen, end):
                    activity.ready[part] = None
            activity.seen[log.id] = end

    @staticmethod
    def is_empty(context: GroupContext) -> bool:
        """Return True if nothing waits in a shared group, so that no member can get anything."""
        group, topic = context.group, context.topic
        if group.keyed or any(row.state for row in group.copies.values()):
            return False
        return not topic.waiting(context.backlog.spans(0))

    def share(self, context: GroupContext, hungry: int) -> int:
        """Return the share of one of the members that wait for something."""
        if context.group.keyed or hungry <= 1:
            return 1 << 30
        spans = context.backlog.spans(0)
        waiting = context.topic.waiting(spans) + sum(1 for row in context.group.copies.values() if row.state)
        offered = sum(offer.records() for offer in context.activity.offers.values())
        return max(1, (waiting - offered) // hungry)

    def found(self, damaged: list[tuple[int, int]]) -> None:
        """Record damaged batches."""
        state = self._state
        state.uncommitted.rows += [c.BatchQuarantined(log, offset) for log, offset in damaged]
        state.counters["batches_damaged"] += len(damaged)

    # Members

    def make_room(self, topic: Topic, group: Group, now: float, most: int) -> bool:
        """Return True if the group has room for one more member, perhaps after it has forgotten one."""
        if len(group.members) < most:
            return True
        activity = self.of(topic, group, now)
        idle = [key for key, member in group.members.items() if not member.held and key not in activity.polls]
        if not idle:
            return False
        self._forget_member(
            topic, group, min(idle, key=lambda key: (not group.members[key].left, group.members[key].heard))
        )
        return True

    def _forget_member(self, topic: Topic, group: Group, key: Key) -> None:
        activity = self._activities.get((topic.name, group.name))
        if activity is not None:
            activity.forget(key)
            activity.heard.pop(key, None)
        group.forget(key)
        topic.dirty.group(topic.name, group.name)

    def in_doubt(self, topic: Topic, group: Group, now: float) -> bytes:
        """Return the records in doubt, as JSON."""
        context = self.context(topic, group, now)
        silent = [
            key
            for key, member in group.members.items()
            if member.held and not context.activity.is_heard(key, now, self._liveness)
        ]
        records = sum(context.count(*piece) for key in silent for piece in group.members[key].pieces())
        return json.dumps({"in_doubt": records, "members": silent}, separators=(",", ":")).encode("ascii")

    # Time

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        if self._look:
            return float("-inf")
        dues = min((activity.due for activity in self._activities.values()), default=float("inf"))
        return min(self._look_at, dues, self._expiries[0][0] if self._expiries else float("inf"))

    def tick(self, now: float) -> None:
        """Note the groups in which something is due; `watch` and the serving do it, when all records are stored."""
        while self._expiries and self._expiries[0][0] <= now:
            _, name, key = heappop(self._expiries)
            self._look[name] = None
            if (found := self._activities.get(name)) is not None:
                found.expired.append(key)
        for name, activity in self._activities.items():
            if activity.due <= now:
                activity.due = float("inf")
                self._look[name] = None
        if now >= self._look_at:
            self._look_at, self._due = float("inf"), True

    def watch(self, now: float) -> list[str]:
        """Look at the members of all groups, if that is due; return the topics with damage in the store."""
        if not self._due:
            return []
        self._due = False
        for gone in [name for name, _ in self._activities if name not in self._state.topics]:
            self.end_all(gone, Outcome.UNKNOWN)
        damaged: dict[str, None] = {}
        idle = now >= self._idle_at
        for topic in list(self._state.topics.values()):
            for group in list(topic.groups.values()) if not topic.frozen else ():
                if group.row.on:
                    self._look_at = now + self._liveness / LOOKS_A_LIVENESS
                    try:
                        self._watch(topic, group, now, idle=idle)
                    except StoreDamaged:
                        damaged[topic.name] = None
        if self._activities:
            self._look_at = now + self._liveness / LOOKS_A_LIVENESS
        if idle:
            self._idle_at = now + IDLE_PARTS_SECONDS
        return list(damaged)

    def _watch(self, topic: Topic, group: Group, now: float, *, idle: bool) -> None:
        """Look at the members of a group (GR17, GR18 and GR20)."""
        activity = self.of(topic, group, now)
        for key in list(activity.offers):
            if activity.silence(key, now) > self._liveness:
                self._lose(topic, group, key, now)
        if self._state.is_held_back(topic.name):
            return
        if note_silent(self.context(topic, group, now)):
            self._look[topic.name, group.name] = None
        stamp = self._state.stamps.reading(now)
        for key, member in list(group.members.items()):
            silence = activity.silence(key, now)
            if member.held and group.row.redeliver and silence > max(self._liveness, group.row.lost_ms / 1000):
                number = release(self.context(topic, group, now), key)
                activity.count("given_up", number)
                self._state.counters["group_records_given_up"] += number
                self._look[topic.name, group.name] = None
            elif member.held and silence > HOLD_SECONDS and not is_full(group):
                copy_out(self.context(topic, group, now), key, COPIED_AT_ONCE)
            elif member.left and not member.held and stamp - member.heard > FORGET_SECONDS * 1_000_000:
                self._forget_member(topic, group, key)
        if idle and group.keyed:
            self._pass_idle(topic, group, activity)

    def _lose(self, topic: Topic, group: Group, key: Key, now: float) -> None:
        """End the offer of a member that is silent; the first record of it counts a loss (GR17 and GR18)."""
        activity = self._activities[topic.name, group.name]
        offer = activity.offers.pop(key)
        activity.count("offers_lost")
        first: tuple[int, str, int] | None = None
        if group.keyed:
            context = self.context(topic, group, now)
            for part in offer.counts:
                activity.wake(part)
                run = next(context.scan().front(part), None)
                first = first or (None if run is None else (part, run.log, run.low))
        else:
            places = [
                (group.place(log, low), part, log, low) for (part, log), mine in offer.ranges.items() for low, _ in mine
            ]
            first = min(places)[1:] if places else None
        if first is not None and not offer.blind:
            part, log, low = first
            group.facts.change(part, log, low, low + 1, lambda fact: fact._replace(losses=fact.losses + 1))
            topic.dirty.group(topic.name, group.name)
        activity.took_from(key)
        activity.look = True
        self._look[topic.name, group.name] = None

    def _pass_idle(self, topic: Topic, group: Group, activity: Activity) -> None:
        """Move parts without waiting records to the end of the records looked at, so that they hold no log."""
        if activity.ready is None:
            return
        for part in group.parts:
            key = group.key(part)
            spans = topic.subscriptions[key].cursor.backlog
            last = spans[-1] if spans else None
            seen = activity.seen.get(last.log, 0) if last is not None else 0
            if part in activity.ready or len(spans) != 1 or last is None or last.low >= seen:
                continue
            if any(part in offer.counts for offer in activity.offers.values()):
                continue
            topic.pass_over(key, (last.from_offset(seen),))

    # Moves and failures

    def end_all(self, topic: str, outcome: Outcome) -> None:
        """Answer all WORKs that wait on a topic, and forget its groups, because it is not served here any more."""
        for name, activity in self._activities.items():
            if name[0] == topic:
                for poll in activity.polls.values():
                    self._state.replies.answer(poll.origin, outcome)
        self.forget(topic)

    def merged(self, topic: str) -> None:
        """Forget the offers of a topic, because its groups and their order have changed."""
        self.reverted([topic])
        self._look |= {name: None for name in self._activities if name[0] == topic}

    def reverted(self, topics: list[str]) -> None:
        """Forget the offers of topics that were loaded again."""
        for name, activity in self._activities.items():
            if name[0] in topics:
                activity.offers.clear()
                self._indexes.pop(name, None)
                activity.ready, activity.seen = None, {}
                activity.look = True
                for poll in activity.polls.values():
                    poll.changed = True
