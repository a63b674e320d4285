"""What members and operators of groups did and were told, beside the members' own tables; a watch keeps it."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from pubsub.base.intervals import IntervalSet
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_member import GroupMember
from pubsub.protocol import Outcome
from pubsub.protocol.group_bodies import Range
from pubsub.server.topic.group import common
from tests.simulation.grouping.plan import Plan

if TYPE_CHECKING:
    from tests.simulation.history import History


FOR_NOTHING = "group requests answered for nothing"
"""A counter."""


@dataclass(frozen=True)
class Effect:
    """A row of a member's table, or a message that `get` returned.

    Attributes:
        turn: its place among all effects of the run.
    """

    body: str
    member: str
    store: str
    attempts: int
    doubtful: bool
    turn: int
    id: str


@dataclass
class Crew:
    """The record of one group.

    Attributes:
        answered: time of the first answer to SUBSCRIBE; None: none came.
        released: an operator, or the policy, may have given claims up.
        redriven: dead letters were redriven, so their order is broken.
        ended: an operator ended it at least once: nothing is promised about messages before it was made anew.
        resumed: a store was put back, and the group resumed.
        number: the highest number of the group that a member was answered with; made: time of the first answer with it.
        kills: number of processes that each message has killed.
        letters_free: no log holds a dead letter, so the operator may act on them.
        untold: number of power cuts and lost directories of members, with each of which an attempt may be forgotten.
        killed_last: number of processes that messages killed after the phase with faults.
        effects: those of lost directories, and of `get`.
        begun: bodies that a handler has begun.
        poisoned: IDs of begun messages that kill the process of their handler.
        lost_gets: number of messages that a `get` of a killed process may have taken.
        cut_gets: a host lost power, so messages of `get` may come again.
        lost_stores: by client, the store IDs of lost directories.
        unnamed: the members that join without naming values, and have no answer.
    """

    plan: Plan
    answered: float | None = None
    number: int = 0
    made: float | None = None
    killed_last: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    untold: int = 0
    letters_free: bool = False
    released: bool = False
    redriven: bool = False
    ended: int = 0
    resumed: bool = False
    effects: list[Effect] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    poisoned: set[str] = field(default_factory=set)
    lost_gets: int = 0
    cut_gets: bool = False
    lost_stores: set[tuple[str, str]] = field(default_factory=set)
    unnamed: set[str] = field(default_factory=set)

    @property
    def key(self) -> tuple[str, str]:
        return self.plan.topic, self.plan.name

    def killed(self, body: str, message_id: str, *, last: bool) -> str:
        """Note that a message has killed a process; return an objection if its attempts do not count (GR17, GR23)."""
        self.poisoned.add(message_id)
        self.killed_last += last
        self.kills[body] += 1
        wish = self.plan.wish
        most = wish.attempts + len(self.plan.members) + self.untold  # Some are told only when all are back.
        if self.kills[body] <= most or self.redriven or self.ended or self.resumed:
            return ""
        return f"{body} has killed {self.kills[body]} processes of group {self.plan.name}"


class Told:
    """The records that were told as done, with an answer.

    Attributes:
        number: of ranges told so far.
    """

    def __init__(self) -> None:
        self.number = 0
        self._all: dict[tuple[Any, ...], IntervalSet] = defaultdict(IntervalSet)
        self._each: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)

    def add(self, group: tuple[str, str, int], one: Range) -> None:
        """Note a range of a topic's group with this number."""
        lane = *group, one.log, one.part
        self.number += 1
        self._all[lane].add(one.low, one.high)
        self._each[lane].append((self.number, one.low, one.high))

    def has(self, group: tuple[str, str, int], one: Range, number: int) -> bool:
        """Return True if something of a range was among the first ranges told, up to this number."""
        lane = *group, one.log, one.part
        if lane not in self._all or not common(self._all[lane], one.low, one.high):
            return False
        return any(place <= number and low < one.high and high > one.low for place, low, high in self._each[lane])

    def clear(self) -> None:
        """Forget all, because servers know less than they have answered."""
        self._all.clear()
        self._each.clear()


class Crews:
    """The record of all groups of a run.

    Attributes:
        told: the records that were told as done.
        restores: number of stores that were put back. An answer to an earlier message says nothing about the copy.
        turn: number of effects so far.
        blocked: a member waits with its thread blocked.
    """

    def __init__(self, history: History, crews: list[Crew]) -> None:
        self.history, self.all = history, crews
        self.told = Told()
        self.turn = self.restores = 0
        self.counters: Counter[str] = Counter()
        self.blocked = False

    def of(self, topic: str, name: str) -> Crew:
        """The record of a group."""
        return next(crew for crew in self.all if crew.key == (topic, name))

    def next_turn(self) -> int:
        """The place of the next effect."""
        self.turn += 1
        return self.turn

    def restored(self) -> None:
        """A store is of an earlier time: servers know less than they have answered."""
        self.told.clear()
        self.restores += 1
        for crew in self.all:
            crew.resumed = True


@contextlib.contextmanager
def watched_groups(crews: Crews) -> Iterator[None]:
    """See what is told as done, and object where a later message is answered with it.

    An offer binds nothing, so a member may begin a record that another one has told meanwhile.
    """
    shown, answered, compose = GroupCore._shown, GroupMember.answered, GroupMember._compose

    def seen_compose(member: Any, *arguments: Any) -> Any:
        member.composed_after = crews.restores, crews.told.number
        return compose(member, *arguments)

    def seen_shown(core: Any, member: Any, work: Any, status: Any, proxy: int, now: float) -> None:
        shown(core, member, work, status, proxy, now)
        if status.outcome is Outcome.SUCCESS and member.composed_after[0] == crews.restores:
            for one in work.say.done:
                crews.told.add((member.topic, member.name, work.subscription), one)

    def seen_answered(member: Any, work: Any, lines: Any, *rest: Any) -> None:
        group = member.topic, member.name, work.subscription
        for line in lines if member.composed_after[0] == crews.restores else ():
            if crews.told.has(group, line.range, member.composed_after[1]):
                crews.history.violate(
                    f"{member.client} is answered with {line.kind} {line.range[:3]} of {member.topic}, told as done"
                )
        if _is_for_nothing(member.sent, lines, *rest):
            crews.counters[FOR_NOTHING] += 1
        answered(member, work, lines, *rest)

    with (
        mock.patch.object(GroupCore, "_shown", seen_shown),
        mock.patch.object(GroupMember, "answered", seen_answered),
        mock.patch.object(GroupMember, "_compose", seen_compose),
    ):
        yield


def _is_for_nothing(sent: Any, lines: Any, records: Any, reason: str, now: float) -> bool:
    """Return True if a request that should wait longer was answered with neither more nor less than it named."""
    if reason or records is not None or now >= sent.began + sent.work.wait_ms / 1000 - 0.01:
        return False
    named = (*sent.work.say.keep, *sent.work.say.offered)
    return sum(line.range.high - line.range.low for line in lines) == sum(one.high - one.low for one in named)
