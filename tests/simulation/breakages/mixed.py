"""Breakages that need mixtures: tables, topics of dead letters, quotas of clients."""

from __future__ import annotations

import contextlib
from typing import Any

from pubsub.client.flows.attempts import Attempts
from pubsub.proxy.client_quotas import ClientQuotas
from pubsub.server.requests import reads
from tests.simulation.breakages.room import Room, substitute

breakage = Room("mixtures: ")


@breakage("a reader is not told of deletions that went")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, reads, "misses_tombstones", lambda topic, after, known: False)


@breakage("a dead letter is put in a commit of its own")
def _(stack: contextlib.ExitStack) -> None:
    original = Attempts._put_letter

    def put_letter(self: Any, letter: Any, changes: Any) -> bool:
        self.session.commit(changes, fsync=True)
        return original(self, letter, [])

    substitute(stack, Attempts, "_put_letter", put_letter)


@breakage("a put of a client costs nothing")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ClientQuotas, "took", lambda self, user, head, size: None)
