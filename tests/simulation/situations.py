"""Situations that a long run must have come across: counted, so that one that never comes about is seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pubsub.proxy.register
import pubsub.server.moves.moves
import pubsub.server.recovery.abandoned
import pubsub.server.standby.disk.held_answers
import pubsub.server.standby.disk.member_disk
import pubsub.server.standby.member
import pubsub.server.topic.delivery
import pubsub.server.upkeep.staging
from pubsub.protocol.messages import Outcome, Status
from pubsub.server.standby.election.proposer import Chosen
from pubsub.server.state.replies import LISTENER, Outgoing
from pubsub.server.topic.stages import Stage
from pubsub.server.topic.topic import Topic

SITUATIONS = {
    "joined where both sides have skips": "merges of merged topics, with watermarks on both sides",
    "joined where both sides are acknowledged": "merges where a subscriber is further at both sides",
    "joined with stages": "merges that bring along what a sink has staged",
    "taken back": "topics taken back from a receiver that was given up",
    "ended by its bytes": "answers cut by their limit in bytes",
    "answered full": "requests refused by a limit, or a full disk",
    "answered busy": "requests answered `busy`",
    "answered lost": "readers told that records are lost",
    "answered restage": "sinks told to stage again",
    "a giver answered moved": "givers told by the receiver that it gives the topic away itself",
    "batches_without_bytes": "batches whose bytes went by the limit of history",
    "batches_damaged": "batches found damaged",
    "topics_quarantined": "topics set aside, since they had been given up",
    "places_gone": "readers told that their log was given up",
    "puts_gone": "publishers told that their log was given up",
    "iterations ended by another call": "iterations whose rest another thread of the client took",
    "clients gone while they iterate": "clients killed with messages taken and not handed out",
    "clients gone in a handler that put": "clients killed in a handler that had put, or in its commit",
    "trains": "messages with several rows of a chain",
    "trains_ended_early": "such messages of which a server took a part, or none",
    "trains refused by an older server": "such messages that an older server refused",
    "entries taken by an older release": "entries that a standby of an older release took",
    "entries of form 1 taken by this release": "entries of the first form that a standby of this release took",
    "entries of form 2 taken by this release": "entries of the second form that a standby took",
    "chunks taken by an older release": "chunks that a server of an older release took",
    "chunks of form 1 taken by this release": "chunks of the first form that a server of this release took",
    "chunks of form 2 taken by this release": "chunks of the second form that a server took",
    "fault: close": "clients closed in order",
    "iterations that a close gave back": "closed clients that gave back what an iteration had not handed out",
    "clients closed after a step was cut off": "clients closed after Ctrl-C had cut a step off",
    "clients opened again after a step was cut off": "clients opened again after Ctrl-C had cut a step off",
    "clients closed while their disk takes no commit": "clients closed while their disk takes no commit",
    "calls cancelled": "calls cancelled where they waited",
    "servers started on a full disk": "servers, or members, started while their disk was full",
    "receivers killed while a topic was frozen for them": "primaries killed while a topic was on its way to them",
    "servers killed as they made a topic": "servers killed as they made a topic that they were given",
    "words on a new topic that got lost": "announcements of a new topic that got lost, before server and proxies died",
    "topics frozen for a member whose other one serves": "topics on their way to who serves no more",
    "failovers": "times that the other member of a server served from then on",
    "chosen: handover": "planned changes of who serves",
    "chosen: add_to_sync": "members that were in sync again",
    "chosen: remove": "members removed for good",
    "members replaced": "members whose host was gone for good, and another one in its place",
    "members put back": "members that came back with an old copy of their disk",
    "members copied": "stores copied to the other member",
    "group messages done twice, and told": "messages of consumer groups done twice after a release, with the mark",
    "group handlers begun again": "attempts of handlers of consumer groups after the first one",
    "group_records_released": "records of consumer groups that an operator gave up",
    "entries taken back": "loops that were on their way to the other member, and found the disk full",
    "votes given back": "proxies that lost a register, and have their vote again",
}
"""By counter: the situations that a long run must have met, and their meaning."""

Count = Callable[..., None]
"""Count a situation by its name, unless the given value is false."""

Counting = tuple[Any, str, Callable[..., Any]]
"""The replaced attribute of a module or class, and its counting replacement."""


def answered(counters: dict[str, int], out: Outgoing) -> None:
    """Count the answers of a server."""
    message = out.message
    if type(message) is Status and message.outcome in _NAMES:
        name = _NAMES[message.outcome]
        if message.outcome is Outcome.MOVED:
            if out.link != LISTENER:
                return
            name = "a giver answered moved"
        counters[name] = counters.get(name, 0) + 1


_NAMES = {
    outcome: f"answered {outcome.value}"
    for outcome in (Outcome.FULL, Outcome.BUSY, Outcome.LOST, Outcome.RESTAGE, Outcome.MOVED)
}


@contextlib.contextmanager
def counted(counters: dict[str, int]) -> Any:
    """Count events within servers."""

    def count(name: str, so: object = True) -> None:
        if so:
            counters[name] = counters.get(name, 0) + 1

    with contextlib.ExitStack() as stack:
        for target, attribute, value in (*_in_pairs(count), *_in_topics(count)):
            stack.enter_context(mock.patch.object(target, attribute, value))
        yield


def _in_topics(count: Count) -> tuple[Counting, ...]:
    merge = pubsub.server.moves.moves.merge
    join = pubsub.server.upkeep.staging.Staging.merge
    take_back = pubsub.server.recovery.abandoned.Abandoned._take_back
    fitting = pubsub.server.topic.delivery._Walk._fitting

    def counting_merge(topic: Topic, other: Topic, next_watermark: int) -> Any:
        count("joined where both sides have skips", topic.watermarks and other.watermarks)
        for name in topic.subscriptions.keys() & other.subscriptions.keys():
            mine, its = topic.subscriptions[name], other.subscriptions[name]
            if mine.on and its.on and mine.cursor.acknowledged[1] and its.cursor.acknowledged[1]:
                count("joined where both sides are acknowledged")
                break
        return merge(topic, other, next_watermark)

    def counting_join(self: Any, topic: Topic, stages: Iterable[Stage]) -> None:
        arrived = list(stages)
        count("joined with stages", arrived)
        join(self, topic, arrived)

    def counting_take_back(self: Any, topic: Topic) -> None:
        count("taken back")
        take_back(self, topic)

    def counting_fitting(self: Any, body: Any, index: int, wanted: int) -> int:
        count("ended by its bytes")
        return fitting(self, body, index, wanted)

    return (
        (pubsub.server.moves.moves, "merge", counting_merge),
        (pubsub.server.upkeep.staging.Staging, "merge", counting_join),
        (pubsub.server.recovery.abandoned.Abandoned, "_take_back", counting_take_back),
        (pubsub.server.topic.delivery._Walk, "_fitting", counting_fitting),
    )


def _in_pairs(count: Count) -> tuple[Counting, ...]:
    become = pubsub.server.standby.member.Member._become
    adopt = pubsub.server.standby.disk.member_disk.MemberDisk.adopt
    entry_back = pubsub.server.standby.disk.held_answers.HeldAnswers.taken_back
    admit = pubsub.proxy.register.Registers._admit

    def counting_become(self: Any, outcome: Any) -> None:
        count(f"chosen: {getattr(outcome, 'kind', '')}", isinstance(outcome, Chosen))
        become(self, outcome)

    def counting_adopt(self: Any, copy: Any) -> None:
        adopt(self, copy)
        count("members copied")

    def counting_entry_back(self: Any) -> None:
        count("entries taken back", self._open)
        entry_back(self)

    def counting_admit(self: Any, asked: Any) -> Any:
        new = asked.store not in self.rows
        outcome = admit(self, asked)
        count("votes given back", new and asked.promised and asked.store in self.rows)
        return outcome

    return (
        (pubsub.server.standby.member.Member, "_become", counting_become),
        (pubsub.server.standby.disk.member_disk.MemberDisk, "adopt", counting_adopt),
        (pubsub.server.standby.disk.held_answers.HeldAnswers, "taken_back", counting_entry_back),
        (pubsub.proxy.register.Registers, "_admit", counting_admit),
    )
