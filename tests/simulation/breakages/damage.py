"""Breakages of a server's reaction to a damaged page."""

from __future__ import annotations

import contextlib

from pubsub.server.group_commit import GroupCommit
from pubsub.server.topic.changes import Change
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("handed out within the transaction")
def _(stack: contextlib.ExitStack) -> None:
    """As it was once: a page that cannot be read then keeps all of the loop from the disk, at each start again."""

    def deliver(self: GroupCommit, now: float) -> list[Change]:
        with self.store.guarded():
            self.core.deliver(now)
            changes = self.core.changes(now)
            self.store.apply(changes)
        return changes

    substitute(stack, GroupCommit, "_deliver", deliver)
