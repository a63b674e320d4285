"""Breakages of the rules of purges (docs/explanation/topics.md)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pubsub.server.moves.chunks
import pubsub.server.topic.start
import pubsub.server.upkeep.retention
from pubsub.server.requests.purging import Purging
from pubsub.server.storage.applying import Applying
from pubsub.server.topic.changes import TopicPurged
from pubsub.server.topic.delivery import _Walk
from tests.simulation.breakages.room import Room, substitute

breakage = Room("purges: ")


@breakage("a repeat purges what came since")
def _(stack: contextlib.ExitStack) -> None:
    original = Purging._purge

    def purge(self: Any, topic: Any, places: dict[str, int], *, unread: bool) -> None:
        original(self, topic, {log: topic.logs[log].end for log in places if log in topic.logs}, unread=unread)

    substitute(stack, Purging, "_purge", purge)


@breakage("every purge takes unread messages")
def _(stack: contextlib.ExitStack) -> None:
    original = Purging._purge

    def purge(self: Any, topic: Any, places: dict[str, int], *, unread: bool) -> None:
        original(self, topic, places, unread=bool(places))

    substitute(stack, Purging, "_purge", purge)


@breakage("purged though another server may hold the topic")
def _(stack: contextlib.ExitStack) -> None:
    original = Purging.handle
    substitute(stack, Purging, "handle", lambda self, origin, request, _=False: original(self, origin, request, True))


@breakage("a subscriber is not told")
def _(stack: contextlib.ExitStack) -> None:
    original = _Walk._let_go

    def let_go(self: Any, log: str, first: int, stop: int, reason: str) -> int:
        return stop if reason == "purged" else original(self, log, first, stop, reason)

    substitute(stack, _Walk, "_let_go", let_go)


@breakage("purges do not travel")
def _(stack: contextlib.ExitStack) -> None:
    chunks = pubsub.server.moves.chunks
    original = chunks.describe
    substitute(stack, chunks, "describe", lambda *facts: replace(original(*facts), purged={}))


@breakage("purges are not stored")
def _(stack: contextlib.ExitStack) -> None:
    original = Applying.apply

    def apply(self: Any, changes: Any) -> Any:
        return original(self, [change for change in changes if not isinstance(change, TopicPurged)])

    substitute(stack, Applying, "apply", apply)


@breakage("a purge lets go of all that is kept")
def _(stack: contextlib.ExitStack) -> None:
    retention = pubsub.server.upkeep.retention
    substitute(stack, retention, "kept_places", lambda topic, kept: {log.id: log.end for log in topic.logs.values()})


@breakage("a new reader gets purged messages")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.topic.start, "hidden_below", lambda topic: {})
