"""Breakages of the rules of messages that wait at a client (docs/explanation/retries.md)."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.client.core.cursor
import pubsub.client.core.waiting
import pubsub.client.flows.attempts
import pubsub.client.session
import pubsub.client.session_parts
import pubsub.client.storage.applying
from pubsub.client.core import changes as c
from tests.simulation.breakages.room import Room, substitute

breakage = Room("retries: ")


def _commits_without(stack: contextlib.ExitStack, kind: type, beside: type) -> None:
    """Leave a kind of change out of the commits that also have another one."""
    session = pubsub.client.session.Session
    original = session.commit

    def commit(self: Any, changes: Any, *, fsync: bool = False) -> bool:
        changes = tuple(changes)
        if any(isinstance(change, beside) for change in changes):
            changes = tuple(change for change in changes if not isinstance(change, kind))
        return original(self, changes, fsync=fsync)

    substitute(stack, session, "commit", commit)


@breakage("a message is put aside without the position")
def _(stack: contextlib.ExitStack) -> None:
    _commits_without(stack, c.Taken, c.PutAside)


@breakage("the position passes a message that is not stored")
def _(stack: contextlib.ExitStack) -> None:
    _commits_without(stack, c.PutAside, c.PutAside)


@breakage("a redriven letter stays a letter")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.storage.applying, "_remove_letters", lambda change: ())


@breakage("a waiting message is not removed with its handling")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.client.flows.attempts.Attempts.changes

    def changes(self: Any, attempt: Any) -> Any:
        return [] if attempt.row is not None else original(self, attempt)

    substitute(stack, pubsub.client.flows.attempts.Attempts, "changes", changes)


@breakage("messages of a key pass one that waits")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.core.waiting.WaitingMessages, "holds", lambda self, topic, lane: False)


@breakage("attempts begin anew at a start")
def _(stack: contextlib.ExitStack) -> None:
    cursor = pubsub.client.core.cursor.Cursor
    original = cursor.load

    def load(self: Any, position: Any, tried: Any, attempts: int) -> None:
        original(self, position, tried, 0)

    substitute(stack, cursor, "load", load)


@breakage("waits are over at a start")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.session_parts, "seconds_left", lambda due, seconds, wall: 0.0)
