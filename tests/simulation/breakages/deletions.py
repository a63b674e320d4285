"""Breakages of the rules of deletions (docs/explanation/deletion.md)."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.server.requests.puts
from pubsub.proxy.deletions import ProxyDeletions
from pubsub.server.recovery.deletions import ServerDeletions
from pubsub.server.storage.applying import Applying
from pubsub.server.topic.changes import NoteKept
from pubsub.server.topic.notes import DELETED
from tests.simulation.breakages.room import Room, substitute

breakage = Room("deletions: ")


@breakage("told: a server that returns is told nothing, and gets requests")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ProxyDeletions, "announced", lambda self, server, digest, now: None)


@breakage("drop: a server keeps the topic")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ServerDeletions, "_drop", lambda self, name: None)


@breakage("named: a new publisher needs no log")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.server.requests.puts, "may_be_deleted", lambda deletions, put, topic: False)


@breakage("kept: a server forgets deletions at its end")
def _(stack: contextlib.ExitStack) -> None:
    original = Applying.apply

    def apply(self: Any, changes: Any) -> Any:
        kept = [one for one in changes if not (isinstance(one, NoteKept) and one.name.startswith(DELETED))]
        return original(self, kept)

    substitute(stack, Applying, "apply", apply)
