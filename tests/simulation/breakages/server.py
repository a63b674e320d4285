"""Breakages of how a server takes puts, orders its disk and its answers, and keeps subscriptions."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pubsub.server.loop
import pubsub.server.ownership.proxies
import pubsub.server.ownership.unconfirmed
import pubsub.server.requests.puts
import pubsub.server.storage.store
import pubsub.server.topic.topic
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("duplicate detection off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic
    original = topic.judge

    def judge(last: int, counter: int, count: int, previous: int) -> topic.Verdict:
        verdict = original(last, counter, count, previous)
        return topic.Verdict.TAKE if verdict is topic.Verdict.DUPLICATE else verdict

    substitute(stack, pubsub.server.requests.puts, "judge", judge)


@breakage("put chain off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic
    original = topic.judge

    def judge(last: int, counter: int, count: int, previous: int) -> topic.Verdict:
        return original(last, counter, count, min(previous, last))

    substitute(stack, pubsub.server.requests.puts, "judge", judge)


@breakage("answer before commit")
def _(stack: contextlib.ExitStack) -> None:
    def finish(self: pubsub.server.loop.Loop, now: float) -> None:
        self._core.changes = partial(_nothing, self._core)  # type: ignore[method-assign]
        self.send(now)
        del self._core.changes
        self._group_commit.commit(now)
        self.reconnect()

    substitute(stack, pubsub.server.loop.Loop, "_finish", finish)


def _nothing(core: Any, now: float) -> list[Any]:
    return []


@breakage("answer before fsync")
def _(stack: contextlib.ExitStack) -> None:
    store = pubsub.server.storage.store
    lax = tuple((name, 1 if name == "synchronous" else value) for name, value in store._PRAGMAS)
    substitute(stack, store, "_PRAGMAS", lax)


@breakage("announced after the answer")
def _(stack: contextlib.ExitStack) -> None:
    """Together with the wait for a proxy's confirmation: either rule alone prevents the loss."""
    proxies = pubsub.server.ownership.proxies.Proxies
    substitute(stack, proxies, "announce", lambda self, changed, change, now: None)
    substitute(
        stack, pubsub.server.ownership.unconfirmed.UnconfirmedAnnouncements, "holds", lambda self, origin, answer: False
    )


@breakage("last-get ID ignored")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    substitute(stack, topic, "acknowledge", lambda self, name, last: True)
    substitute(stack, topic, "reading", lambda self, cursor, position: cursor.backlog)


@breakage("subscription number off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    original = topic.subscribe

    def subscribe(self: Any, name: str, number: int, epoch: int, on: bool, begin: Any, **more: bool) -> Any:
        subscription = self.subscriptions.get(name)
        if subscription is not None and number < subscription.number:
            subscription.number = number - 1
        return original(self, name, number, epoch, on, begin, **more)

    substitute(stack, topic, "subscribe", subscribe)


@breakage("fence off")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.server.topic.topic.Subscription
    substitute(stack, subscription, "outdates", lambda self, number, epoch: number < self.number)


@breakage("trimmed what is not acknowledged")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    substitute(stack, topic, "floors", lambda self: {log.id: log.end for log in self.logs.values()})
