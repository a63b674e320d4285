"""Ends the own process by SIGKILL at a named point of the client's store.

`{"change": "Intended", "when": "after", "count": 1}`: at the first commit that holds an `Intended`. `inside`: all of it
is written and nothing is committed; `after`: it is committed, and nothing that follows from it has happened.

A row that is committed alone is a transaction of its own, so `inside` is where SQLite asks whether it may commit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any, cast

from pubsub.client.core.changes import Change
from pubsub.client.storage.store import Store
from pubsub.client.wire import Wire
from pubsub.protocol import Message


def die() -> bool:
    """As if the power of this one process were cut."""
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def die_at(change: str, when: str, count: int = 1) -> None:
    """Has this process die there."""
    state = {"left": count, "due": False}
    apply, succeeded = Store.apply, Store._succeeded

    def counting_apply(self: Store, changes: Iterable[Change]) -> None:
        held = tuple(changes)
        if any(type(one).__name__ == change for one in held):
            state["left"] -= 1
            state["due"] = state["due"] or state["left"] == 0
            if state["due"] and when == "inside":
                self.db.set_commit_hook(die)
        apply(self, held)

    def dying_succeeded(self: Store) -> None:
        if state["due"]:
            die()
        succeeded(self)

    patched: Any = Store
    patched.apply, patched._succeeded = counting_apply, dying_succeeded


POINTS = ("commit inside", "commit after", "send before", "send after")
"""Where `die_at_step` counts."""


def die_at_step(point: str, count: int) -> None:
    """Has this process die when it comes to a point for the `count`-th time: of each commit, or of each message sent.

    Args:
        point: one of POINTS. `inside`: all of the commit is written and nothing is committed; `after`: nothing that
            follows from it has happened. `before` and `after` a message is handed to the sockets.
    """
    left = [count]
    within: dict[str, bool] = {}

    def come() -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    apply, succeeded, send = Store.apply, Store._succeeded, Wire.send

    def commits() -> bool:
        if within.pop("applied", False):
            come()
        return False

    def applied(self: Store, changes: Iterable[Change]) -> None:
        if point == "commit inside":
            within["applied"] = True
            self.db.set_commit_hook(commits)
        apply(self, changes)

    def done(self: Store) -> None:
        if point == "commit after":
            come()
        succeeded(self)

    def sent(self: Wire, token: int, proxy: int, message: Message) -> None:
        if point == "send before":
            come()
        send(self, token, proxy, message)
        if point == "send after":
            come()

    store, wire = cast(Any, Store), cast(Any, Wire)
    store.apply, store._succeeded, wire.send = applied, done, sent
