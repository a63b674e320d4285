"""Ends the own process by SIGKILL at a named point of the client's store.

`{"change": "Intended", "when": "after", "count": 1}`: at the first commit that holds an `Intended`. `inside`: all of it
is written and nothing is committed; `after`: it is committed, and nothing that follows from it has happened.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

from pubsub.client.core.changes import Change
from pubsub.client.storage.store import Store


def die() -> None:
    """As if the power of this one process were cut."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(change: str, when: str, count: int = 1) -> None:
    """Has this process die there."""
    state = {"left": count, "due": False}
    apply, succeeded = Store.apply, Store._succeeded

    def counting_apply(self: Store, changes: Iterable[Change]) -> None:
        held = tuple(changes)
        apply(self, held)
        if any(type(one).__name__ == change for one in held):
            state["left"] -= 1
            state["due"] = state["due"] or state["left"] == 0
            if state["due"] and when == "inside":
                die()

    def dying_succeeded(self: Store) -> None:
        if state["due"]:
            die()
        succeeded(self)

    patched: Any = Store
    patched.apply, patched._succeeded = counting_apply, dying_succeeded
