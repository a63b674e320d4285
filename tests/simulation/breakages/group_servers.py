"""Breakages of consumer groups at servers, by the names of the model's rules (docs/explanation/groups.md)."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec.structs import replace

import pubsub.server.groups.handing
import pubsub.server.groups.work
import pubsub.server.moves.chunks
import pubsub.server.requests.groups
import pubsub.server.state.uncommitted
import pubsub.server.topic.facts
from pubsub.server.groups.activity import Activity
from pubsub.server.groups.context import GroupContext
from pubsub.server.groups.memory import Memory
from pubsub.server.groups.scan import Scan
from pubsub.server.requests.groups import Groups
from pubsub.server.topic.group import DEAD, Group
from pubsub.server.topic.group_rows import MemberChanged
from tests.simulation.breakages.room import Room, substitute

breakage = Room("groups: ")


@breakage("durable: a claim is answered and not stored")
def _(stack: contextlib.ExitStack) -> None:
    changes = pubsub.server.state.uncommitted.group_changes

    def forgetful(topic: int, group: Any) -> list[Any]:
        return [change for change in changes(topic, group) if not isinstance(change, MemberChanged)]

    substitute(stack, pubsub.server.state.uncommitted, "group_changes", forgetful)


@breakage("once: what another member holds is claimed again")
def _(stack: contextlib.ExitStack) -> None:
    claim = GroupContext.claim

    def greedy(self: Any, key: Any, one: Any) -> None:
        claim(self, key, one)
        mine = self.group.members[key].held.get((one.part or 0, one.log))
        for other in self.group.holders_of(one.part or 0) if not self.group.keyed else ():
            if other != key and (mine is None or one.low not in mine):
                its = self.group.members[other].held.get((0, one.log))
                if its is not None and its.covers(one.low, one.high):
                    self.hold(key, (0, one.log), one.low, one.high)

    substitute(stack, GroupContext, "claim", greedy)


@breakage("number: a late message counts like a new one")
def _(stack: contextlib.ExitStack) -> None:
    hear = Groups._hear

    def forgetful(self: Any, origin: Any, topic: Any, group: Any, work: Any, now: float) -> None:
        member = group.members.get((work.sender, work.store))
        if member is not None and work.number < member.number:
            member.number, member.epoch = work.number - 1, min(member.epoch, work.epoch)
        hear(self, origin, topic, group, work, now)

    substitute(stack, Groups, "_hear", forgetful)


@breakage("doubt: what a silent member has claimed goes to others")
def _(stack: contextlib.ExitStack) -> None:
    watch = Memory._watch

    def impatient(self: Any, topic: Any, group: Any, now: float, *, idle: bool) -> None:
        watch(self, topic, group, now, idle=idle)
        context = self.context(topic, group, now)
        for key, member in list(group.members.items()):
            if member.held and context.activity.silence(key, now) > self._liveness:
                for part, log, low, high in list(member.pieces()):
                    group.drop(key, (part, log), low, high)
                    context.backlog.give_back(part, log, low, high)
                    context.activity.wake(part)
                context.activity.took_from(key)
                context.note()

    substitute(stack, Memory, "_watch", impatient)


@breakage("told: what was given up goes out without the mark")
def _(stack: contextlib.ExitStack) -> None:
    holding = pubsub.server.groups.handing.Holding

    def silent(kind: str, one: Any, attempts: int = 0, doubtful: bool = False, reason: str = "") -> Any:
        return holding(kind, one, attempts, False, reason)

    substitute(stack, pubsub.server.groups.handing, "Holding", silent)


@breakage("home: a group is made, and works, though another server may hold the topic")
def _(stack: contextlib.ExitStack) -> None:
    subscribe, work = Groups.subscribe, Groups._work

    def alone(self: Any, origin: Any, request: Any, now: float, sole_owner: bool = False) -> None:
        subscribe(self, origin, request, now, True)

    def working(self: Any, origin: Any, request: Any, now: float, sole_owner: bool) -> None:
        work(self, origin, request, now, True)

    substitute(stack, Groups, "subscribe", alone)
    substitute(stack, Groups, "_work", working)


@breakage("travel: claims stay behind in a move")
def _(stack: contextlib.ExitStack) -> None:
    _moved(stack, lambda row: replace(row, held=()))


@breakage("numbers: members' numbers stay behind in a move")
def _(stack: contextlib.ExitStack) -> None:
    _moved(stack, lambda row: replace(row, number=0, epoch=0))


def _moved(stack: contextlib.ExitStack, changed: Any) -> None:
    member_of = pubsub.server.moves.chunks.member_of
    substitute(stack, pubsub.server.moves.chunks, "member_of", lambda row: member_of(changed(row)))


@breakage("watermark: a merge's filter is not looked at")
def _(stack: contextlib.ExitStack) -> None:
    first = Scan._first

    def unfiltered(self: Any, span: Any, batch: Any, place: int, stop: int, watermark: Any) -> int:
        return first(self, span, batch, place, stop, {})

    substitute(stack, Scan, "_first", unfiltered)


@breakage("part: two members may hold claims of one part")
def _(stack: contextlib.ExitStack) -> None:
    holders = Group.holders_of

    def all_of(self: Any, part: int) -> list[Any]:
        return [key for key, member in self.members.items() if member.held] if self.keyed else holders(self, part)

    parts = pubsub.server.groups.handing._parts

    def every(context: Any, key: Any, hungry: int) -> Any:
        yield from parts(context, key, hungry)
        yield from list(context.group.parts)

    substitute(stack, Group, "holders_of", all_of)
    substitute(stack, pubsub.server.groups.handing, "_parts", every)


@breakage("front: records are claimed from anywhere in a part")
def _(stack: contextlib.ExitStack) -> None:
    def anywhere(self: Any, key: Any, lane: Any, low: int, high: int, _room: int) -> None:
        log = self.topic.logs.get(lane[1])
        high = high if log is None else min(high, log.end)
        for first, stop in self.backlog.take(*lane, low, high) if low < high else ():
            self.hold(key, lane, first, stop)

    walk_front = Scan.front

    def behind(self: Any, part: int) -> Any:
        found = list(walk_front(self, part))
        yield from found[1:2] or found
        yield from found[:1] if len(found) > 1 else ()

    substitute(stack, GroupContext, "_claim_front", anywhere)
    substitute(stack, Scan, "front", behind)


@breakage("lost: an offer to a member that is not heard goes on")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Memory, "_lose", lambda self, topic, group, key, now: None)


@breakage("blocked: an offer of a part goes on when another member claims in it")
def _(stack: contextlib.ExitStack) -> None:
    end = Activity.end_offers

    def going_on(self: Any, group: Any, *own: Any, but: Any = None) -> None:
        if not group.keyed:
            end(self, group, *own, but=but)

    substitute(stack, Activity, "end_offers", going_on)


@breakage("facts: what is done counts only from the member that holds it")
def _(stack: contextlib.ExitStack) -> None:
    finish = pubsub.server.groups.work.finish

    def strict(context: Any, key: Any, done: Any) -> None:
        member = context.group.members.get(key)
        held = {} if member is None else member.held
        own = [one for one in done if (one.part or 0, one.log) in held and one.low in held[one.part or 0, one.log]]
        finish(context, key, own)

    substitute(stack, pubsub.server.groups.work, "finish", strict)
    substitute(stack, pubsub.server.requests.groups, "finish", strict)


@breakage("suspect: an attempt that ended its process does not count")
def _(stack: contextlib.ExitStack) -> None:
    begun = pubsub.server.groups.work._begun

    def forgiving(context: Any, key: Any, say: Any) -> Any:
        return begun(context, key, say._replace(tried=()))

    change = pubsub.server.topic.facts.Facts.change

    def harmless(self: Any, part: int, log: str, low: int, high: int, how: Any) -> Any:
        return change(self, part, log, low, high, lambda fact: how(fact)._replace(losses=fact.losses))

    substitute(stack, pubsub.server.groups.work, "_begun", forgiving)
    substitute(stack, pubsub.server.topic.facts.Facts, "change", harmless)


@breakage("letters_hold_the_log: a dead letter stays in its log, too")
def _(stack: contextlib.ExitStack) -> None:
    floors = Group.floors

    def holding(self: Any) -> Any:
        yield from floors(self)
        yield from ((row.log, row.offset) for row in self.copies.values() if row.state == DEAD)

    substitute(stack, Group, "floors", holding)


@breakage("wakes_all: a put ends the wait of each member")
def _(stack: contextlib.ExitStack) -> None:
    appended = Memory.appended

    def waking(self: Any, topic: str) -> None:
        appended(self, topic)
        for (name, _), activity in self._activities.items():
            for poll in activity.polls.values() if name == topic else ():
                poll.changed = activity.look = True

    substitute(stack, Memory, "appended", waking)


@breakage("restored_goes_on: a group of a restored copy goes on without an operator")
def _(stack: contextlib.ExitStack) -> None:
    go_on = Group.go_on_in

    def going_on(self: Any, log: str, end: int, tail: Any, *, restored: bool) -> None:
        go_on(self, log, end, tail, restored=False)

    substitute(stack, Group, "go_on_in", going_on)
