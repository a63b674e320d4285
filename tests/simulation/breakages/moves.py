"""Breakages of the transfer of a topic to another server, and of the merge with the topic of that server."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import pubsub.server.moves.giving
import pubsub.server.moves.moves
import pubsub.server.moves.receiving
import pubsub.server.state.state
import pubsub.server.topic.merge
import pubsub.server.topic.topic
from pubsub.protocol.transfers import Transfer
from pubsub.server.moves.chunks import Last, Subscriptions, decode
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


def leave_out(stack: contextlib.ExitStack, kind: type[Any]) -> None:
    """A transfer lacks the chunks that hold this."""
    moves = pubsub.server.moves.moves
    original = moves.chunks
    substitute(
        stack,
        moves,
        "chunks",
        lambda *given: (chunk for chunk in original(*given) if not isinstance(decode(chunk), kind)),
    )


@breakage("`last` left out of a transfer")
def _(stack: contextlib.ExitStack) -> None:
    leave_out(stack, Last)


@breakage("subscriptions left out of a transfer")
def _(stack: contextlib.ExitStack) -> None:
    leave_out(stack, Subscriptions)


@breakage("freeze not durable")
def _(stack: contextlib.ExitStack) -> None:
    moves = pubsub.server.moves.moves.Moves
    original = moves._freeze

    def freeze(self: Any, name: str, address: str) -> None:
        with mock.patch.object(self._state.uncommitted, "topic", return_value=None):
            original(self, name, address)

    substitute(stack, moves, "_freeze", freeze)


@breakage("delete before the other's commit")
def _(stack: contextlib.ExitStack) -> None:
    giving = pubsub.server.moves.giving.Giving
    original = giving.pump

    def pump(self: Any, now: float) -> None:
        original(self, now)
        for gift in list(self.gifts.values()):
            if gift.total is not None and not gift.unacknowledged:
                del self.gifts[gift.topic]
                self._given(gift.topic, Transfer(gift.server, gift.topic, "done", gift.transfer), gift.address)

    substitute(stack, giving, "pump", pump)


@breakage("chunk taken out of its order")
def _(stack: contextlib.ExitStack) -> None:
    receiving = pubsub.server.moves.receiving.Receiving
    original = receiving.chunk

    def chunk(self: Any, message: Any, now: float) -> Any:
        incoming = self._find(message, now)
        if incoming is not None and message.chunk > incoming.next:
            incoming.next = message.chunk
        return original(self, message, now)

    substitute(stack, receiving, "chunk", chunk)


@breakage("watermark ignored in a span")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge._Watermarks
    substitute(stack, join, "store", lambda self, counters: 0)


@breakage("`since` ignored in a span")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    original = topic.subscribe
    substitute(
        stack,
        topic,
        "subscribe",
        lambda self, name, number, epoch, on, since: original(self, name, number, epoch, on, 0),
    )


@breakage("own `last` kept in a join")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge
    original, larger = join.merge, join.larger

    def merge(topic: Any, other: Any, next_watermark: int) -> Any:
        before = dict(topic.last)
        result = original(topic, other, next_watermark)
        topic.last = {**topic.last, **before}
        return result

    assert larger
    substitute(stack, pubsub.server.moves.moves, "merge", merge)


@breakage("joined records end before they are cut")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge
    substitute(
        stack,
        join,
        "cut",
        lambda spans, log, end: tuple(span for span in spans if span.high is not None or span.log != log),
    )


@breakage("the subscription with the lower number wins")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.moves.moves.merge

    def merge(topic: Any, other: Any, next_watermark: int) -> Any:
        for name, subscription in topic.subscriptions.items():
            its = other.subscriptions.get(name)
            if its is not None:
                subscription.number, its.number = its.number, subscription.number
        return original(topic, other, next_watermark)

    substitute(stack, pubsub.server.moves.moves, "merge", merge)


@breakage("to whom a topic was given is not said")
def _(stack: contextlib.ExitStack) -> None:
    state = pubsub.server.state.state.State
    substitute(stack, state, "announce_given", lambda self, topic, done: self.announce(topic.name, ""))
