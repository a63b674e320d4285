"""Deliberate breakages of the rules of two members of a server; each takes one rule out of the shipped code.

They are tried like the others (`table`), and by `test_pairs` each with a seed that shows it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pubsub.proxy.register
import pubsub.server.process
import pubsub.server.standby.disk.held_answers
import pubsub.server.standby.disk.member_disk
import pubsub.server.standby.disk.pages
import pubsub.server.standby.disk.stream
import pubsub.server.standby.election.acceptor_recovery
import pubsub.server.standby.election.proposer
import pubsub.server.standby.member
import pubsub.server.standby.replication.follower
import pubsub.server.standby.replication.primary
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.register import VoteOutcome
from pubsub.proxy.remembered import RegisterRow
from tests.simulation.breakages.room import Room, substitute

Leading = pubsub.server.standby.replication.primary.Leading
Following = pubsub.server.standby.replication.follower.Following
Proposer = pubsub.server.standby.election.proposer.Proposer
Registers = pubsub.proxy.register.Registers

PAIR = "pair: "

breakage = Room(PAIR)


# Answers


@breakage("answer before the standby has it")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Leading, "_confirmed", lambda self: self._done)


@breakage("answer before the own commit")
def _(stack: contextlib.ExitStack) -> None:
    def confirmed(self: Any) -> int:
        standby = self._standby
        required = standby is not None and standby.id in self.required
        return int(standby.loop if required else self.loop)

    substitute(stack, Leading, "_confirmed", confirmed)
    loops = pubsub.server.standby.disk.held_answers.HeldAnswers
    substitute(stack, loops, "taken_back", loops.committed)


@breakage("hold skipped for one answer")
def _(stack: contextlib.ExitStack) -> None:
    loops = pubsub.server.standby.disk.held_answers.HeldAnswers
    original = loops.passed

    def passed(self: Any, out: Any) -> Any:
        first = next((one for one in out if _is_success(one[0].message)), None)
        rest = [one for one in out if one is not first]
        return ([] if first is None else [first]) + original(self, rest)

    substitute(stack, loops, "passed", passed)


def _is_success(message: object) -> bool:
    return isinstance(message, Status) and message.outcome is Outcome.SUCCESS and message.last >= 0


@breakage("what changes nothing is not held")
def _(stack: contextlib.ExitStack) -> None:
    loops = pubsub.server.standby.disk.held_answers.HeldAnswers
    original = loops.passed

    def passed(self: Any, out: Any) -> Any:
        return original(self, out) if self._counted else [*out, *original(self, [])]

    substitute(stack, loops, "passed", passed)


@breakage("deposed, and answers")
def _(stack: contextlib.ExitStack) -> None:
    def released(self: Any) -> list[Any]:
        out = [one for held in self._held for one in held.out]
        self._held.clear()
        self._held_bytes = 0
        return out

    original = Leading.released
    substitute(stack, Leading, "released", lambda self: released(self) if self.deposed else original(self))
    member = pubsub.server.standby.member.Member
    substitute(stack, member, "over", False)


# The store and the stream of the standby


@breakage("acknowledged before it is synced")
def _(stack: contextlib.ExitStack) -> None:
    stream = pubsub.server.standby.disk.stream.Stream
    original = stream.sync

    def sync(self: Any) -> Any:
        return self.end if self._segments and not self._unsynced and self._synced else original(self)

    substitute(stack, stream, "sync", sync)


@breakage("taken-back loop not cut")
def _(stack: contextlib.ExitStack) -> None:
    def taken_back(self: Any) -> Any:
        self._done = self.loop
        self._saved = self.end
        return self.end

    substitute(stack, Leading, "taken_back", taken_back)


@breakage("stream trimmed too far")
def _(stack: contextlib.ExitStack) -> None:
    stream = pubsub.server.standby.disk.stream.Stream
    original = stream.append

    def append(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        while len(self._segments) > 1:
            self._remove(self._segments.pop(0))

    substitute(stack, stream, "append", append)
    substitute(stack, stream, "_make_room", _new_file)


def _new_file(self: Any) -> None:
    newest = self._segments[-1]
    if newest.end != newest.base:
        self._begin(newest.end)
        self._unsynced.append(newest)


@breakage("what was staged is not applied by who takes over")
def _(stack: contextlib.ExitStack) -> None:
    def promote(self: Any) -> list[Any]:
        return list(self._staged)[: max(0, self._committed - self._first)]

    substitute(stack, Following, "promote", promote)
    original = pubsub.server.standby.disk.member_disk.MemberDisk.take

    def take(self: Any, following: Any) -> Any:
        end = original(self, following)
        self.stream.cut(end)
        return end

    substitute(stack, pubsub.server.standby.disk.member_disk.MemberDisk, "take", take)


# Copies


@breakage("copy torn, and counted as whole")
def _(stack: contextlib.ExitStack) -> None:
    pages = pubsub.server.standby.disk.pages.PageCopy
    original = pages.take

    def take(self: Any, answer: Any) -> bool:
        if answer.step == "pages" and self.first == answer.first:
            answer.body = bytes(answer.body)[: len(answer.body) // 2]
        if answer.step == "checked":
            self.first = self._pages + 1
            return True
        return bool(original(self, answer))

    substitute(stack, pages, "take", take)


@breakage("copy takes the store's place without its entry's place")
def _(stack: contextlib.ExitStack) -> None:
    disk = pubsub.server.standby.disk.member_disk.MemberDisk
    original = disk.adopt

    def adopt(self: Any, copy: Any) -> None:
        reset, self.stream.reset = self.stream.reset, lambda base: None
        try:
            original(self, copy)
        finally:
            self.stream.reset = reset

    substitute(stack, disk, "adopt", adopt)


# The register


@breakage("promoted without a majority")
def _(stack: contextlib.ExitStack) -> None:
    original = Proposer.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.majority = 1

    substitute(stack, Proposer, "__init__", init)
    substitute(stack, Registers, "_has_other_primary", lambda self, asked, now: False)


@breakage("who is behind takes over")
def _(stack: contextlib.ExitStack) -> None:
    original = Proposer._wanted

    def wanted(self: Any, attempt: Any, current: Any, ballot: int) -> Any:
        if attempt.kind == "takeover":
            me = self.identity
            return current._replace(term=ballot, primary=me.member, address=me.address, in_sync=(me.member,))
        return original(self, attempt, current, ballot)

    substitute(stack, Proposer, "_wanted", wanted)


@breakage("term not raised")
def _(stack: contextlib.ExitStack) -> None:
    original = Proposer._wanted

    def wanted(self: Any, attempt: Any, current: Any, ballot: int) -> Any:
        view = original(self, attempt, current, ballot)
        return view._replace(term=current.term) if view is not None and attempt.kind in {"takeover", "resume"} else view

    substitute(stack, Proposer, "_wanted", wanted)


@breakage("goes on alone without asking the register")
def _(stack: contextlib.ExitStack) -> None:
    original = Leading.tick

    def tick(self: Any, now: float) -> None:
        original(self, now)
        if self._standby is not None and self._standby.id in self.required and not self._is_well(self._standby, now):
            self.chosen((self.member,))

    substitute(stack, Leading, "tick", tick)


@breakage("in sync before it has caught up")
def _(stack: contextlib.ExitStack) -> None:
    def proposal(self: Any, now: float) -> Any:
        standby = self._standby
        if standby is None or self.deposed:
            return None
        if not self._is_well(standby, now):
            return frozenset((self.member,)) if standby.id in self.required else None
        return None if standby.id in self.in_sync else frozenset((self.member, standby.id))

    substitute(stack, Leading, "proposal", proposal)
    substitute(stack, Leading, "_is_well", lambda self, standby, now: now - standby.received_at < self._silence)


@breakage("register forgets what it promised and accepted")
def _(stack: contextlib.ExitStack) -> None:
    original = Registers._keep

    def keep(self: Any, row: RegisterRow) -> None:
        known = row.store in self.rows
        original(self, row)
        if known:
            self._changes.registers.pop(row.store)

    substitute(stack, Registers, "_keep", keep)


@breakage("a proxy without a memory votes")
def _(stack: contextlib.ExitStack) -> None:
    promises, accepts = Registers._prepare, Registers._accept

    def prepare(self: Any, asked: Any, now: float) -> Any:
        return promises(self, asked, now) if asked.store in self.rows else VoteOutcome.PROMISED

    substitute(stack, Registers, "_prepare", prepare)

    def accept(self: Any, asked: Any) -> Any:
        if asked.store in self.rows:
            return accepts(self, asked)
        self._keep(RegisterRow(asked.store, asked.ballot, asked.ballot, asked.view, asked.sender))
        return VoteOutcome.ACCEPTED

    substitute(stack, Registers, "_accept", accept)


@breakage("a promise is not kept")
def _(stack: contextlib.ExitStack) -> None:
    def accept(self: Any, asked: Any) -> Any:
        if asked.store not in self.rows:
            return VoteOutcome.NEW
        self._keep(replace(self.rows[asked.store], promised=asked.ballot, ballot=asked.ballot, view=asked.view))
        return VoteOutcome.ACCEPTED

    substitute(stack, Registers, "_accept", accept)


@breakage("a member is removed without the register")
def _(stack: contextlib.ExitStack) -> None:
    member = pubsub.server.standby.member.Member
    original = member.remove

    def remove(self: Any, gone: str, now: float) -> bool:
        done = original(self, gone, now)
        if done and self.leading is not None:
            self.leading.chosen((self.identity.member,))
            self._removing = ""
            self.proposer.view = self.proposer.view._replace(members=(self.identity.member,))
        return bool(done)

    substitute(stack, member, "remove", remove)


@breakage("two members have one ID")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.standby.disk.member_disk, "new_member", lambda: "5" * 16)
