"""Breakages of the rules of the setting `expire` (docs/explanation/defaults.md, Y3)."""

from __future__ import annotations

import contextlib

from pubsub.server.upkeep import expiry
from tests.simulation.breakages.room import Room, substitute

breakage = Room("expiry: ")


@breakage("all that waits is too old")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, expiry, "expired_below", lambda log, oldest, reader: log.end)
