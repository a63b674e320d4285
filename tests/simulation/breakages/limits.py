"""Breakages of quotas (docs/explanation/quotas.md) and of the time to live (docs/explanation/ttl.md)."""

from __future__ import annotations

import contextlib
from typing import Any

from pubsub.client.core.chain import Chain
from pubsub.client.core.prefetch import Taking
from pubsub.client.flows.gets import Gets
from pubsub.server.state.quotas import Quotas
from tests.simulation.breakages.room import Room, substitute

breakage = Room("limits: ")


@breakage("a put costs nothing")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Quotas, "took", lambda self, topic, put, now: None)


@breakage("no put waits")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Quotas, "holds", lambda self, topic, now: False)


@breakage("a throttled chain waits for another answer")
def _(stack: contextlib.ExitStack) -> None:
    original = Chain._throttle

    def throttle(self: Any, status: Any, now: float) -> None:
        original(self, status, now)
        self._throttled_until = float("inf")

    substitute(stack, Chain, "_throttle", throttle)


@breakage("messages expire early")
def _(stack: contextlib.ExitStack) -> None:
    original = Taking.pass_expired
    substitute(stack, Taking, "pass_expired", lambda self, wall: original(self, wall + 1.0))


@breakage("no message expires")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Taking, "pass_expired", lambda self, wall: None)


@breakage("an expired message takes the next one along")
def _(stack: contextlib.ExitStack) -> None:
    original = Gets.took

    def took(self: Any, sub: Any, taking: Any, *, fsynced: bool) -> None:
        original(self, sub, taking, fsynced=fsynced)
        if taking.expired and sub.prefetch:
            following = sub.take(1)
            if isinstance(following, Taking):
                sub.prefetch.took(following)

    substitute(stack, Gets, "took", took)
