"""Breakages of the client's stored state: its outbox, its positions and its memory of taken messages."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.client.core.core
import pubsub.client.core.cursor
import pubsub.client.core.outbox
import pubsub.client.core.prefetch
import pubsub.client.core.subscription
import pubsub.client.flows.gets
import pubsub.client.flows.work
import pubsub.client.session
import pubsub.client.storage.store
from pubsub.client.core.changes import Intended, RowsRemoved
from tests.simulation.breakages.room import Room, substitute
from tests.simulation.clients import Forgetful

breakage = Room()


@breakage("put after a power cut not marked")
def _(stack: contextlib.ExitStack) -> None:
    outbox = pubsub.client.core.outbox
    original = outbox.Draft.add

    def add(self: Any, topic: str, *contents: Any) -> Any:
        row = original(self, topic, *contents)
        row.sole_owner = 0
        return row

    substitute(stack, outbox.Draft, "add", add)


@breakage("put counters given out again")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.storage.store.Store, "save_milliseconds", lambda self, milliseconds: None)


@breakage("transaction's put sent before its fsync")
def _(stack: contextlib.ExitStack) -> None:
    accept, entered = pubsub.client.core.outbox.Outbox.accept, pubsub.client.flows.work.Work.__enter__

    def enter(self: Any) -> Any:
        self._fsync = False
        return entered(self)

    substitute(stack, pubsub.client.flows.work.Work, "__enter__", enter)
    substitute(stack, pubsub.client.core.outbox.Outbox, "accept", lambda self, draft, **_: accept(self, draft))


@breakage("acknowledged before fsync")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.client.core.core.ClientCore
    original = core.moved

    def moved(self: Any, sub: Any, now: float, *, fsynced: bool) -> None:
        original(self, sub, now, fsynced=fsynced)
        sub.synced()

    substitute(stack, core, "moved", moved)


@breakage("same number for two transmissions")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.client.core.subscription.Subscription
    original = subscription.ask

    def ask(self: Any, number: int, epoch: int) -> Any:
        intent = self.intent
        return original(self, intent.asked if intent.asked > intent.number else number, epoch)

    substitute(stack, subscription, "ask", ask)


@breakage("intent to unsubscribe not stored first")
def _(stack: contextlib.ExitStack) -> None:
    session = pubsub.client.session.Session
    original = session.commit

    def commit(self: Any, changes: Any, *, fsync: bool = False) -> bool:
        kept = [change for change in changes if not (isinstance(change, Intended) and not change.on)]
        return original(self, kept, fsync=fsync)

    substitute(stack, session, "commit", commit)


@breakage("position not committed with what was handled")
def _(stack: contextlib.ExitStack) -> None:
    calls = pubsub.client.core.prefetch.Taking
    substitute(stack, calls, "change", lambda self, topic: [])


@breakage("client's second net off")
def _(stack: contextlib.ExitStack) -> None:
    cursor = pubsub.client.core.cursor.Cursor
    substitute(stack, cursor, "taken", property(lambda self: Forgetful()))


@breakage("rest of an iteration dropped by another call")
def _(stack: contextlib.ExitStack) -> None:
    gets = pubsub.client.flows.gets.Gets
    close, end = gets.close_chunk, gets.end_chunk

    def end_chunk(self: Any, topic: str, chunk: Any) -> None:
        self.ends_itself = True
        try:
            end(self, topic, chunk)
        finally:
            self.ends_itself = False

    def close_chunk(self: Any, sub: Any) -> None:
        if getattr(self, "ends_itself", False):
            close(self, sub)
        else:
            sub.end_chunk()

    substitute(stack, gets, "end_chunk", end_chunk)
    substitute(stack, gets, "close_chunk", close_chunk)


@breakage("finished rows stay in the store")
def _(stack: contextlib.ExitStack) -> None:
    outbox = pubsub.client.core.outbox.Outbox
    original = outbox.removals
    substitute(
        stack,
        outbox,
        "removals",
        lambda self: [change for change in original(self) if not isinstance(change, RowsRemoved)],
    )
