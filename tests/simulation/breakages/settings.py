"""Breakages of the rules of topic settings and of what they keep (docs/explanation/retention.md)."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec.structs import replace

import pubsub.server.moves.chunks
import pubsub.server.requests.configuring
import pubsub.server.topic.merge
import pubsub.server.topic.start
import pubsub.server.upkeep.keeping
import pubsub.server.upkeep.retention
from pubsub.server.requests.configuring import Configuring
from pubsub.server.topic.settings import DEFAULTS, Settings, merged
from pubsub.server.upkeep.keeping import stored_below
from pubsub.server.upkeep.retention import Retention
from tests.simulation.breakages.room import Room, substitute

breakage = Room("settings: ")

RETENTION = pubsub.server.upkeep.retention


def _queues(retention: Retention) -> tuple[Any, Any]:
    return retention._allowed, retention._over


@breakage("keep is not looked at")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, RETENTION, "released", lambda topic, *_: {log.id: log.end for log in topic.logs.values()})


@breakage("any value of a conflict lets go")
def _(stack: contextlib.ExitStack) -> None:
    released = pubsub.server.upkeep.keeping.released

    def any_of(topic: Any, amounts: Any, stamp: int, reader: Any) -> Any:
        each = [released(topic, (amount,), stamp, reader) for amount in amounts]
        return {log: max(one[log] for one in each) for log in topic.logs}

    substitute(stack, RETENTION, "released", any_of)


@breakage("records that are hidden count")
def _(stack: contextlib.ExitStack) -> None:
    keeping = pubsub.server.upkeep.keeping
    original = keeping._backwards

    def backwards(topic: Any) -> Any:
        for span, log in original(topic):
            yield replace(span, watermark=0), log

    substitute(stack, keeping, "_backwards", backwards)


@breakage("a change leaves earlier findings in force")
def _(stack: contextlib.ExitStack) -> None:
    original = Configuring._configure

    def configure(self: Any, origin: Any, request: Any, now: float) -> None:
        generation, allowed, over = (dict(self._retention._generation), *map(list, _queues(self._retention)))
        original(self, origin, request, now)
        self._retention._generation = generation
        self._retention._allowed.extend(item for item in allowed if item not in self._retention._allowed)
        self._retention._over.extend(item for item in over if item not in self._retention._over)

    substitute(stack, Configuring, "_configure", configure)


@breakage("a change replaces any settings")
def _(stack: contextlib.ExitStack) -> None:
    original = Configuring._configure

    def configure(self: Any, origin: Any, request: Any, now: float) -> None:
        topic = self._state.topics.get(request.topic)
        settings = DEFAULTS if topic is None else topic.settings
        if not settings.made_from(request.version):
            request.base = settings.version
        original(self, origin, request, now)

    substitute(stack, Configuring, "_configure", configure)


@breakage("the newer settings win a merge")
def _(stack: contextlib.ExitStack) -> None:
    def newer(mine: Settings, its: Settings) -> Settings:
        both = merged(mine, its)
        one = max(mine, its, key=lambda settings: (settings.stamp, settings.version))
        return replace(both, keep=one.keep, drop=one.drop)

    substitute(stack, pubsub.server.topic.merge, "merged", newer)


@breakage("the receiver's settings win a merge")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.topic.merge, "merged", lambda mine, its: mine)


@breakage("settings do not travel")
def _(stack: contextlib.ExitStack) -> None:
    chunks = pubsub.server.moves.chunks
    original = chunks.describe

    def describe(*facts: Any) -> Any:
        said = original(*facts)
        said.settings = DEFAULTS
        return said

    substitute(stack, chunks, "describe", describe)


@breakage("a new reader begins at batches without bytes")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.topic.start, "first_with_body", lambda reader, log: log.low)


@breakage("dropped though another server may hold the topic")
def _(stack: contextlib.ExitStack) -> None:
    original = Retention.decided

    def decided(self: Any, asked: Any, sole_owner: bool, now: float) -> None:
        if not sole_owner and asked.topic in self._state.topics:
            self._over.extend((asked.topic, log, upto, True) for log, upto in {**asked.cuts, **asked.drops}.items())
        original(self, asked, sole_owner, now)

    substitute(stack, Retention, "decided", decided)


@breakage("drop takes what keep keeps")
def _(stack: contextlib.ExitStack) -> None:
    original = Retention._drops

    def drops(self: Any, topic: Any, settings: Any, limits: Any, stamp: int, old: int) -> Any:
        stored = stored_below(topic, self._state.uncommitted.rows)
        return original(self, topic, settings, stored, stamp, old)

    substitute(stack, Retention, "_drops", drops)
