"""Breakages of a proxy's memory, its checks of servers and its merges."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.base.liveness
import pubsub.proxy.announcements
import pubsub.proxy.servers
import pubsub.proxy.store_directory
from pubsub.proxy.admission import Judgement, Verdict
from tests.simulation import nodes
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("topics not written to the routes file")
def _(stack: contextlib.ExitStack) -> None:
    """A file that says nothing at all does no harm: a proxy that starts with it knows that it knows nothing."""
    commit = nodes._Proxy._commit

    def without_topics(self: Any, now: float) -> None:
        self.core.table.changes.holders.clear()
        commit(self, now)

    substitute(stack, nodes._Proxy, "_commit", without_topics)


@breakage("stale announcement accepted")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.proxy.announcements.judge

    def judge(*arguments: Any) -> Judgement:
        judgement = original(*arguments)
        return Judgement(Verdict.ACCEPT) if judgement.verdict in {Verdict.LATE, Verdict.STALE} else judgement

    substitute(stack, pubsub.proxy.announcements, "judge", judge)


@breakage("heartbeat never expires")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.base.liveness.Liveness, "alive", _always)


def _always(self: Any, now: float) -> bool:
    return True


@breakage("proxy without a memory speaks for all")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.proxy.store_directory.StoreDirectory, "awaits", lambda self: "")


@breakage("contested topics not merged")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.proxy.servers.Servers, "_merge", lambda self, now: setattr(self, "_merged", now))
