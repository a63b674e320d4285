"""Breakages of consumer groups at their members, by the names of the model's rules (docs/explanation/groups.md)."""

from __future__ import annotations

import contextlib
from typing import Any
from zlib import crc32

import pubsub.client.closing
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_holdings import Holdings
from pubsub.client.core.group_in_hand import ABSENT, CLAIMED, RecordInHand
from pubsub.client.core.group_member import GroupMember
from pubsub.client.flows.group_processing import GroupProcessing
from pubsub.protocol.groups import Work
from tests.simulation.breakages.room import Room, substitute

breakage = Room("groups: ")


@breakage("claim: an effect commits for what is only offered")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, GroupMember, "is_claimed", lambda self, hand: not hand.over)
    substitute(stack, GroupMember, "is_decided", lambda self, hand: True)


@breakage("last: an answer to an earlier message counts")
def _(stack: contextlib.ExitStack) -> None:
    receive, forget = GroupCore.receive, GroupCore._forget

    def keeping(self: Any, tokens: list[int]) -> None:
        forget(self, [token for token in tokens if not isinstance(_sent(self, token), Work)])
        tokens.clear()

    def taking(self: Any, token: int, status: Any, now: float) -> None:
        flight = self._group_flights.get(token)
        if flight is not None and isinstance(flight.sent, Work) and flight.member.sent is not None:
            flight.member.sent.work = flight.sent
        receive(self, token, status, now)

    substitute(stack, GroupCore, "_forget", keeping)
    substitute(stack, GroupCore, "receive", taking)


def _sent(core: Any, token: int) -> Any:
    flight = core._group_flights.get(token)
    return None if flight is None else flight.sent


@breakage("stop: a member goes on with what it does not name")
def _(stack: contextlib.ExitStack) -> None:
    def give_back_queue(self: Any) -> bool:
        entries = list(self.queue.entries())
        for entry in entries:
            self.kept.discard(entry.lane, entry.low, entry.high)
            self.offered.discard(entry.lane, entry.low, entry.high)
        return bool(entries)

    event = RecordInHand.event

    def going_on(self: Any, happened: str) -> None:
        if not (happened == ABSENT and self.state == CLAIMED):
            event(self, happened)

    substitute(stack, Holdings, "give_back_queue", give_back_queue)
    substitute(stack, RecordInHand, "event", going_on)


@breakage("kept: what is committed and not fsynced is not named")
def _(stack: contextlib.ExitStack) -> None:
    finish = Holdings.finish

    def forgetting(self: Any, hand: Any) -> None:
        finish(self, hand)
        self.kept.discard((hand.log, hand.part), hand.low, hand.high)

    substitute(stack, Holdings, "finish", forgetting)


@breakage("store: an empty directory is the member that was before")
def _(stack: contextlib.ExitStack) -> None:
    init = GroupMember.__init__

    def named(self: Any, member: int, client: str, topic: str, name: str, store: str, *rest: Any) -> None:
        init(self, member, client, topic, name, f"{crc32(client.encode()):016x}", *rest)

    substitute(stack, GroupMember, "__init__", named)


@breakage("settle: a new process does not tell what its directory has as done")
def _(stack: contextlib.ExitStack) -> None:
    load = GroupMember.load_work

    def silent(self: Any, done: Any, begun: Any, cuts: int) -> None:
        load(self, done, begun, cuts)
        self.holdings.hard.clear()

    substitute(stack, GroupMember, "load_work", silent)


@breakage("fsync: what no fsync covers is told as done")
def _(stack: contextlib.ExitStack) -> None:
    finish = Holdings.finish

    def telling(self: Any, hand: Any) -> None:
        finish(self, hand)
        self.synced()

    substitute(stack, Holdings, "finish", telling)


@breakage("repeat: what is done is told once")
def _(stack: contextlib.ExitStack) -> None:
    next_work = GroupMember.next_work

    def once(self: Any, now: float, take: Any, epoch: int) -> Any:
        before = self.sent
        work = next_work(self, now, take, epoch)
        if work is not None and before is not None and work is before.work:
            work.say = work.say._replace(done=())
            self.holdings.hard.clear()
        return work

    substitute(stack, GroupMember, "next_work", once)


@breakage("nofilter: a member drops by the publisher's counter")
def _(stack: contextlib.ExitStack) -> None:
    is_expired = GroupProcessing._is_expired

    def dropping(self: Any, entry: Any) -> bool:
        run = entry.piece.run
        counter = run.counter + entry.piece.start
        last = self.member.__dict__.setdefault("last_counters", {})
        before, last[run.publisher] = last.get(run.publisher, 0), max(last.get(run.publisher, 0), counter)
        return counter < before or is_expired(self, entry)

    substitute(stack, GroupProcessing, "_is_expired", dropping)


@breakage("rest: a record goes back without those behind it in its part")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Holdings, "_return_part", lambda self, part: None)


@breakage("begun: a member that is back does not tell what it had begun")
def _(stack: contextlib.ExitStack) -> None:
    load = GroupMember.load_work

    def silent(self: Any, done: Any, begun: Any, cuts: int) -> None:
        load(self, done, begun, cuts)
        self.ended = {}

    substitute(stack, GroupMember, "load_work", silent)


@breakage("cut: after a power cut only what its directory has counts as begun")
def _(stack: contextlib.ExitStack) -> None:
    load = GroupMember.load_work

    def blind(self: Any, done: Any, begun: Any, cuts: int) -> None:
        load(self, done, begun, self.cuts)

    substitute(stack, GroupMember, "load_work", blind)


@breakage("close_keeps: a close does not give back")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.closing, "_leave_groups", lambda session: [])
