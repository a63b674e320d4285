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


def always_whole(stack: contextlib.ExitStack, room: type, method: str) -> None:
    """A request is taken as if this server were known to be its topic's sole owner."""
    original = getattr(room, method)
    substitute(
        stack, room, method, lambda self, origin, asked, now, whole=False: original(self, origin, asked, now, True)
    )


@breakage("whole always true for a marked put")
def _(stack: contextlib.ExitStack) -> None:
    always_whole(stack, pubsub.server.requests.puts.Puts, "put")


@breakage("whole always true for trimming")
def _(stack: contextlib.ExitStack) -> None:
    retention = pubsub.server.upkeep.retention.Retention
    original = retention.decided
    substitute(stack, retention, "decided", lambda self, asked, whole, now: original(self, asked, True, now))


@breakage("whole always true for a sink's batch")
def _(stack: contextlib.ExitStack) -> None:
    always_whole(stack, pubsub.server.requests.sinks.Sinks, "publish")


@breakage("whole always true for a named subscription")
def _(stack: contextlib.ExitStack) -> None:
    always_whole(stack, pubsub.server.requests.subscriptions.Subscriptions, "subscribe_named")


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
