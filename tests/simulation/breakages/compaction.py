"""Breakages of the rules of compaction (docs/explanation/compaction.md), by the names that the models have for them.

Random runs show those of *elder* and *earlier* too seldom. Scenes are in `tests/server/test_topic.py` and
`tests/server/test_stretches.py`, and `tests/mutation/compaction.toml` breaks the rules there.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import pubsub.server.moves.chunks
from pubsub.protocol import time_to_live
from pubsub.server.storage.loading import Loading
from pubsub.server.upkeep import stretches
from pubsub.server.upkeep.compaction import Compaction
from pubsub.server.upkeep.stretches import Thinning
from tests.simulation.breakages.room import Room, substitute

breakage = Room("compaction: ")


@breakage("sole_owner: acts though another server may hold the topic")
def _(stack: contextlib.ExitStack) -> None:
    original = Compaction.decided
    substitute(stack, Compaction, "decided", lambda self, asked, sole_owner, now: original(self, asked, True, now))


@breakage("held: what a subscriber needs goes")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Thinning, "holder", lambda self, offset: "")


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


@breakage("visible: a record that the history does not show supersedes others")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, stretches, "first_shown", lambda topic, span, batch: 0)


@breakage("patterns: a subscriber to a pattern is not entered")
def _(stack: contextlib.ExitStack) -> None:
    def decided(self: Compaction, asked: Any, sole_owner: bool, now: float) -> None:
        with mock.patch.object(type(self._patterns), "prepare", return_value=True):
            original(self, asked, sole_owner, now)

    original = Compaction.decided
    substitute(stack, Compaction, "decided", decided)


@breakage("ttl: a message goes before its time to live has ended")
def _(stack: contextlib.ExitStack) -> None:
    original = time_to_live.ends_at

    def ends_at(block: bytes, stamp: int) -> float:
        return 0 if original(block, stamp) < float("inf") else float("inf")

    substitute(stack, stretches, "ends_at", ends_at)
