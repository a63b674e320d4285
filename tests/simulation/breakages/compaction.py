"""Breakages of the rules of compaction (docs/explanation/compaction.md), by the names that the models have for them."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec.structs import replace

import pubsub.server.moves.chunks
import pubsub.server.topic.merge
from pubsub.server.storage.loading import Loading
from pubsub.server.upkeep.compaction import Compaction
from pubsub.server.upkeep.stretches import Pass, Thinning
from tests.simulation.breakages.room import Room, substitute

breakage = Room("compaction: ")


@breakage("sole_owner: acts though another server may hold the topic")
def _(stack: contextlib.ExitStack) -> None:
    original = Compaction.decided
    substitute(stack, Compaction, "decided", lambda self, asked, sole_owner, now: original(self, asked, True, now))


@breakage("held: what a subscriber needs goes")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Thinning, "holder", lambda self, offset: "")


@breakage("visible: records that the history hides count")
def _(stack: contextlib.ExitStack) -> None:
    original = Pass._look
    substitute(stack, Pass, "_look", lambda self, span, *more: original(self, replace(span, watermark=0), *more))


@breakage("elder: the receiver comes first in a merge")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.topic.merge, "is_elder", lambda other, topic: False)


@breakage("earlier: a tombstone goes though something of its key is left before it")
def _(stack: contextlib.ExitStack) -> None:
    class Kept(dict[bytes, Any]):
        def pop(self, key: bytes, default: Any = None) -> Any:
            return default

    original = Pass._begin_part

    def begin(self: Any, index: int, high: int | None) -> None:
        original(self, index, high)
        self._tombstones = Kept()

    substitute(stack, Pass, "_begin_part", begin)


@breakage("the parts do not travel")
def _(stack: contextlib.ExitStack) -> None:
    chunks = pubsub.server.moves.chunks
    original = chunks.describe

    def describe(*facts: Any) -> Any:
        said = original(*facts)
        said.compacted = {}
        return said

    substitute(stack, chunks, "describe", describe)


@breakage("a start forgets the parts")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Loading, "_compacted", lambda self, logs, topic: {})
