"""Deliberate breakages of the cooperation of releases with different forms of bytes.

They are tried like the others (`table`), and by `test_forms` each with seeds that show it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.server.moves.moves
import pubsub.server.standby.replication.primary
from tests.simulation.breakages.room import Room, substitute

FORM = "form: "

breakage = Room(FORM)


@breakage("a primary writes the newest form before its standby says that it reads it")
def _(stack: contextlib.ExitStack) -> None:
    leading = pubsub.server.standby.replication.primary
    original = leading.make_entry
    substitute(stack, leading, "make_entry", lambda *given: original(*given[:3]))


@breakage("a giver writes the newest form though the receiver does not say that it reads it")
def _(stack: contextlib.ExitStack) -> None:
    moves = pubsub.server.moves.moves
    original = moves.chunks
    substitute(stack, moves, "chunks", lambda *given: original(*given[:3]))


@breakage("a primary remembers what another standby reads")
def _(stack: contextlib.ExitStack) -> None:
    leading = pubsub.server.standby.replication.primary.Leading
    original = leading.followed

    def followed(self: Any, follow: Any, now: float) -> None:
        follow.form = 2
        original(self, follow, now)

    substitute(stack, leading, "followed", followed)
