"""Breakages of the rule that a server asks for sole ownership before acts that only the sole owner may do."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.server.ownership.proxies
import pubsub.server.ownership.sole_owner
import pubsub.server.ownership.unconfirmed
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


@breakage("answered before a second proxy has heard of the topic")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.ownership.proxies.quorums
    substitute(stack, pubsub.server.ownership.proxies, "quorums", lambda proxies: (1, original(proxies)[1]))


@breakage("which topics too few proxies have heard of is forgotten")
def _(stack: contextlib.ExitStack) -> None:
    unheard = pubsub.server.ownership.unconfirmed.UnconfirmedAnnouncements
    original = unheard.__init__

    def begin(self: Any, *args: Any) -> None:
        original(self, *args)
        self._topics = {}

    substitute(stack, unheard, "__init__", begin)


@breakage("answered before a proxy has heard of the topic")
def _(stack: contextlib.ExitStack) -> None:
    substitute(
        stack, pubsub.server.ownership.unconfirmed.UnconfirmedAnnouncements, "holds", lambda self, origin, answer: False
    )
