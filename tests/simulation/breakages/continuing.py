"""Breakages of the rules by which a subscription outlives its state directory (docs/explanation/continuing.md)."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec import structs

import pubsub.client.core.prefetch
import pubsub.client.core.subscription
import pubsub.client.flows.subscribing
import pubsub.server.moves.chunks
import pubsub.server.moves.moves
import pubsub.server.requests.subscriptions
import pubsub.server.state.state
import pubsub.server.storage.schema
import pubsub.server.topic.commits
import pubsub.server.topic.delivery
import pubsub.server.topic.spans
import pubsub.server.topic.topic
from pubsub.client.core.changes import Intended
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic
from tests.simulation.breakages.ownership import always_whole
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


def unmarked(span: Span) -> tuple[Any, ...]:
    """A row without the mark."""
    return (span.log, span.low, span.high, span.watermark, span.since)


def _without_marks(change: Any) -> Any:
    spans = {
        name: tuple(Span(*unmarked(span)) for span in getattr(change, name, ())) for name in ("history", "backlog")
    }
    return structs.replace(change, **{name: held for name, held in spans.items() if hasattr(change, name)})


# The server


@breakage("continuing drops what waits")
def _(stack: contextlib.ExitStack) -> None:
    original = Topic.subscribe

    def subscribe(self: Any, *facts: Any, continues: bool) -> Any:
        return original(self, *facts)

    substitute(stack, Topic, "subscribe", subscribe)


@breakage("continued though the topic may be split")
def _(stack: contextlib.ExitStack) -> None:
    always_whole(stack, pubsub.server.requests.subscriptions.Subscriptions, "subscribe")


@breakage("continuing does not raise the number")
def _(stack: contextlib.ExitStack) -> None:
    original = Topic.subscribe

    def subscribe(self: Any, name: str, number: int, epoch: int, *facts: Any, continues: bool) -> Any:
        before = self.subscriptions.get(name)
        outcome, subscription, changed = original(self, name, number, epoch, *facts, continues=continues)
        if changed and continues and before is not None and before.on:
            subscription.number, subscription.consumer = before.number, before.consumer
        return outcome, subscription, changed

    substitute(stack, Topic, "subscribe", subscribe)


@breakage("what was handed out is not marked")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.topic.spans, "marked", lambda spans, handed: tuple(spans))


@breakage("marked the first time only")
def _(stack: contextlib.ExitStack) -> None:
    spans = pubsub.server.topic.spans
    original = spans.marked

    def marked(backlog: Any, handed: Any) -> Any:
        return tuple(backlog) if any(span.doubtful for span in backlog) else original(backlog, handed)

    substitute(stack, spans, "marked", marked)


@breakage("a start forgets what was handed out")
def _(stack: contextlib.ExitStack) -> None:
    state = pubsub.server.state.state.State
    original = state._add

    def add(self: Any, topic: Topic) -> Topic:
        original(self, topic)
        for subscription in topic.subscriptions.values():
            subscription.cursor.handed = None
        return topic

    substitute(stack, state, "_add", add)


@breakage("a move forgets what was handed out")
def _(stack: contextlib.ExitStack) -> None:
    moves = pubsub.server.moves.moves
    original = moves.merge

    def merge(topic: Topic, other: Topic, next_watermark: int) -> Any:
        mine = {name: (one, one.cursor.handed) for name, one in topic.subscriptions.items()}
        made = original(topic, other, next_watermark)
        for name, subscription in topic.subscriptions.items():
            before, handed = mine.get(name, (None, None))
            subscription.cursor.handed = handed if subscription is before else None
        return made

    substitute(stack, moves, "merge", merge)


@breakage("mark not stored")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.storage.schema, "row_of", unmarked)


@breakage("mark left out of a transfer")
def _(stack: contextlib.ExitStack) -> None:
    chunks = pubsub.server.moves.chunks
    original = chunks.encode

    def encode(part: Any, *form: int) -> bytes:
        if isinstance(part, chunks.Subscriptions):
            part = chunks.Subscriptions({name: _without_marks(row) for name, row in part.rows.items()})
        return original(_without_marks(part), *form)

    substitute(stack, chunks, "encode", encode)


@breakage("mark left out of a commit to a standby")
def _(stack: contextlib.ExitStack) -> None:
    commits = pubsub.server.topic.commits
    original = commits.encode

    def encode(commit: Any, *form: int) -> bytes:
        changes = [_without_marks(change) for change in commit.changes]
        return original(commits.Commit(commit.incarnation, commit.number, changes), *form)

    substitute(stack, commits, "encode", encode)


@breakage("one answer of both kinds")
def _(stack: contextlib.ExitStack) -> None:
    def goes_with(self: Any, span: Span) -> None:
        self.doubtful = span.doubtful

    substitute(stack, pubsub.server.topic.delivery._Walk, "_goes_with", goes_with)


# The client


@breakage("mark lost in the prefetch")
def _(stack: contextlib.ExitStack) -> None:
    prefetch = pubsub.client.core.prefetch.Prefetch
    original = prefetch.add

    def add(self: Any, records: Any, *, doubtful: bool = False, replay: int = 0) -> None:
        original(self, records, replay=replay)

    substitute(stack, prefetch, "add", add)


@breakage("rest of an iteration dropped by who goes on")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.core.subscription.Subscription, "leave_chunk", lambda self: [])


@breakage("a new directory begins at the end")
def _(stack: contextlib.ExitStack) -> None:
    subscribing = pubsub.client.flows.subscribing.Subscribing
    original = subscribing._continues_nothing
    substitute(
        stack,
        subscribing,
        "_continues_nothing",
        staticmethod(lambda sub, *, known: not known or original(sub, known=known)),
    )


@breakage("who has left continues")
def _(stack: contextlib.ExitStack) -> None:
    subscribing = pubsub.client.flows.subscribing.Subscribing
    substitute(stack, subscribing, "_continues_nothing", staticmethod(lambda sub, *, known: False))


@breakage("who is superseded begins at the end")
def _(stack: contextlib.ExitStack) -> None:
    subscribing = pubsub.client.flows.subscribing.Subscribing
    substitute(stack, subscribing, "_continues_nothing", staticmethod(lambda sub, *, known: known))


@breakage("intent to begin at the end not stored")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.client.core.subscription.Subscription
    substitute(stack, subscription, "intend", lambda self, on, **_: Intended(self.topic, on))
