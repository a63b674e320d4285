"""Breakages of the rule that a server asks whether it is the sole owner, before it does what only that one may do."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.server.ownership.sole_owner
import pubsub.server.requests.puts
import pubsub.server.requests.sinks
import pubsub.server.requests.subscriptions
import pubsub.server.upkeep.retention
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("whole always true for a marked put")
def _(stack: contextlib.ExitStack) -> None:
    puts = pubsub.server.requests.puts.Puts
    original = puts.put
    substitute(stack, puts, "put", lambda self, origin, put, now, whole=False: original(self, origin, put, now, True))


@breakage("whole always true for trimming")
def _(stack: contextlib.ExitStack) -> None:
    retention = pubsub.server.upkeep.retention.Retention
    original = retention.decided
    substitute(stack, retention, "decided", lambda self, asked, whole, now: original(self, asked, True, now))


@breakage("whole always true for a sink's batch")
def _(stack: contextlib.ExitStack) -> None:
    sinks = pubsub.server.requests.sinks.Sinks
    original = sinks.publish
    substitute(
        stack,
        sinks,
        "publish",
        lambda self, origin, request, now, whole=False: original(self, origin, request, now, True),
    )


@breakage("whole always true for a named subscription")
def _(stack: contextlib.ExitStack) -> None:
    subscriptions = pubsub.server.requests.subscriptions.Subscriptions
    original = subscriptions.subscribe_named
    substitute(
        stack,
        subscriptions,
        "subscribe_named",
        lambda self, origin, request, now, whole=False: original(self, origin, request, now, True),
    )


@breakage("whole remembered instead of asked")
def _(stack: contextlib.ExitStack) -> None:
    sole_owner = pubsub.server.ownership.sole_owner.SoleOwner
    ask, decided = sole_owner.ask, sole_owner.decided

    def remembering(self: Any, topic: str, operation: Any, *arguments: Any) -> bool:
        if topic in self.__dict__.setdefault("known", set()):
            self._decided.append((topic, operation, True))
            return True
        return ask(self, topic, operation, *arguments)

    def remembered(self: Any) -> Any:
        for operation, sole in decided(self):
            if sole:
                self.__dict__.setdefault("known", set()).add(getattr(operation, "request", operation).topic)
            yield operation, sole

    substitute(stack, sole_owner, "ask", remembering)
    substitute(stack, sole_owner, "decided", remembered)
