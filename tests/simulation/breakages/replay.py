"""Breakages of the rules of starts, seeks and reads along the history (docs/explanation/replay.md, I7)."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec.structs import replace

import pubsub.server.requests.subscriptions
import pubsub.server.topic.start
from pubsub.client.core.cursor import Cursor as ClientCursor
from pubsub.client.core.prefetch import Prefetch
from pubsub.protocol import Outcome
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.topic.topic import Topic
from tests.simulation.breakages.room import Room, substitute

breakage = Room("replay: ")

SUBSCRIPTIONS = pubsub.server.requests.subscriptions
START = pubsub.server.topic.start
cursor_at = START.cursor_at


@breakage("a seek keeps the last counters")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ClientCursor, "forget_taken", lambda self: None)


@breakage("a seek keeps fetched messages")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Prefetch, "clear", lambda self: None)


@breakage("a start by time is one position")
def _(stack: contextlib.ExitStack) -> None:
    begun_all = START.begun_all

    def one_position(topic: Any, spans: Any, since: int, reader: Any) -> Any:
        cut = begun_all(topic, spans, since, reader)
        if not cut:
            return cut
        first = replace(cut[0], since=0)
        following = [span for span in topic.history if span.log != first.log]
        return (first, *(span for span in following if span.log in {one.log for one in cut}))

    substitute(stack, START, "begun_all", one_position)


@breakage("since is the time of the seek")
def _(stack: contextlib.ExitStack) -> None:
    def at_the_seek(topic: Any, start: Any, stamp: int, skew: int, reader: Any) -> Any:
        cursor = cursor_at(topic, start, stamp, skew, reader)
        if cursor is not None:
            cursor.since = max(0, stamp - skew)
        return cursor

    substitute(stack, SUBSCRIPTIONS, "cursor_at", at_the_seek)


@breakage("a position that is not held is the end")
def _(stack: contextlib.ExitStack) -> None:
    def anywhere(topic: Any, start: Any, stamp: int, skew: int, reader: Any) -> Any:
        return cursor_at(topic, start, stamp, skew, reader) or START._at_end(topic, stamp, skew)

    substitute(stack, SUBSCRIPTIONS, "cursor_at", anywhere)


@breakage("any holder says that a position is gone")
def _(stack: contextlib.ExitStack) -> None:
    original = SoleOwner.park_or_reject

    def gone(self: Any, origin: Any, request: Any, otherwise: Any = Outcome.BUSY) -> None:
        if otherwise is Outcome.UNKNOWN:
            self._state.replies.answer(origin, Outcome.GONE, reason="gone")
        else:
            original(self, origin, request, otherwise)

    substitute(stack, SoleOwner, "park_or_reject", gone)


@breakage("nothing begins beside a position")
def _(stack: contextlib.ExitStack) -> None:
    def alone(topic: Any, start: Any, stamp: int, skew: int, reader: Any) -> Any:
        cursor = cursor_at(topic, start, stamp, skew, reader)
        if cursor is not None and isinstance(start, tuple):
            while cursor.backlog[0].log != start[0]:
                cursor.backlog = cursor.backlog[1:]
            cursor.acknowledged = START.start_of(cursor.backlog)
        return cursor

    substitute(stack, SUBSCRIPTIONS, "cursor_at", alone)


@breakage("since of a position is its stamp")
def _(stack: contextlib.ExitStack) -> None:
    original = START._at_record
    substitute(stack, START, "_at_record", lambda topic, start, skew, reader: original(topic, start, 0, reader))


@breakage("the last N are offsets")
def _(stack: contextlib.ExitStack) -> None:
    original = START.last

    def offsets(topic: Any, spans: Any, reader: Any, records: int) -> Any:
        return original(topic, [replace(span, watermark=0, since=0) for span in spans], reader, records)

    substitute(stack, START, "last", offsets)


@breakage("a history has one token for ever")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Topic, "history_token", property(lambda self: "0" * 16))
