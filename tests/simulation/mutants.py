"""Deliberate breakages: the simulator must object to each, or it is too weak to be believed when it does not.

Each takes one rule of the design out of the shipped code, in place, for the length of a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pubsub.base.liveness
import pubsub.client.core.core
import pubsub.client.core.outbox
import pubsub.client.core.prefetch
import pubsub.client.core.subscription
import pubsub.client.flows.gets
import pubsub.client.flows.work
import pubsub.client.session
import pubsub.client.storage.store
import pubsub.messenger.core
import pubsub.messenger.pending
import pubsub.messenger.seen
import pubsub.proxy.announcements
import pubsub.proxy.roster
import pubsub.proxy.servers
import pubsub.server.loop
import pubsub.server.moves.chunks
import pubsub.server.moves.giving
import pubsub.server.moves.moves
import pubsub.server.moves.receiving
import pubsub.server.ownership.proxies
import pubsub.server.ownership.sole_owner
import pubsub.server.requests.puts
import pubsub.server.requests.sinks
import pubsub.server.requests.subscriptions
import pubsub.server.state.state
import pubsub.server.storage.reader
import pubsub.server.storage.store
import pubsub.server.topic.merge
import pubsub.server.topic.topic
import pubsub.server.upkeep.retention
from pubsub.client.core.changes import Intended, RowsRemoved
from pubsub.protocol.messages import Transfer
from pubsub.proxy.admission import Judgement, Verdict
from tests.simulation import nodes
from tests.simulation.clients import Forgetful

Mutant = Callable[[contextlib.ExitStack], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(title: str) -> Callable[[Mutant], Mutant]:
    """Register a breakage under its title."""

    def register(function: Mutant) -> Mutant:
        MUTANTS[title] = function
        return function

    return register


@contextlib.contextmanager
def broken(title: str) -> Iterator[None]:
    """With one rule left out."""
    with contextlib.ExitStack() as stack:
        MUTANTS[title](stack)
        yield


def _replace(stack: contextlib.ExitStack, target: Any, name: str, value: Any) -> None:
    stack.enter_context(mock.patch.object(target, name, value))


# Puts


@mutant("duplicate detection off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic
    original = topic.judge

    def judge(last: int, counter: int, count: int, previous: int) -> topic.Verdict:
        verdict = original(last, counter, count, previous)
        return topic.Verdict.TAKE if verdict is topic.Verdict.DUPLICATE else verdict

    _replace(stack, pubsub.server.requests.puts, "judge", judge)


@mutant("put chain off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic
    original = topic.judge

    def judge(last: int, counter: int, count: int, previous: int) -> topic.Verdict:
        return original(last, counter, count, min(previous, last))

    _replace(stack, pubsub.server.requests.puts, "judge", judge)


@mutant("put after a power cut not marked")
def _(stack: contextlib.ExitStack) -> None:
    outbox = pubsub.client.core.outbox
    original = outbox.Draft.add

    def add(self: Any, topic: str, *contents: Any) -> Any:
        row = original(self, topic, *contents)
        row.whole = 0
        return row

    _replace(stack, outbox.Draft, "add", add)


@mutant("put counters given out again")
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.client.storage.store.Store, "save_milliseconds", lambda self, milliseconds: None)


@mutant("transaction's put sent before its fsync")
def _(stack: contextlib.ExitStack) -> None:
    accept, entered = pubsub.client.core.outbox.Outbox.accept, pubsub.client.flows.work.Work.__enter__

    def enter(self: Any) -> Any:
        self._fsync = False
        return entered(self)

    _replace(stack, pubsub.client.flows.work.Work, "__enter__", enter)
    _replace(stack, pubsub.client.core.outbox.Outbox, "accept", lambda self, draft, **_: accept(self, draft))


# Order of disk and network


@mutant("answer before commit")
def _(stack: contextlib.ExitStack) -> None:
    def finish(self: pubsub.server.loop.Loop, now: float) -> None:
        self._core.changes = partial(_nothing, self._core)  # type: ignore[method-assign]
        self.send(now)
        del self._core.changes
        self._group_commit.commit(now)
        self.reconnect()

    _replace(stack, pubsub.server.loop.Loop, "_finish", finish)


def _nothing(core: Any, now: float) -> list[Any]:
    return []


@mutant("answer before fsync")
def _(stack: contextlib.ExitStack) -> None:
    store = pubsub.server.storage.store
    lax = tuple((name, 1 if name == "synchronous" else value) for name, value in store._PRAGMAS)
    _replace(stack, store, "_PRAGMAS", lax)


@mutant("acknowledged before fsync")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.client.core.core.ClientCore
    original = core.moved

    def moved(self: Any, sub: Any, now: float, *, fsynced: bool) -> None:
        original(self, sub, now, fsynced=fsynced)
        sub.synced()

    _replace(stack, core, "moved", moved)


@mutant("topics not written to the routes file")
def _(stack: contextlib.ExitStack) -> None:
    """A file that says nothing at all does no harm: a proxy that starts with it knows that it knows nothing."""
    commit = nodes._Proxy._commit

    def without_topics(self: Any, now: float) -> None:
        self.core.table.changes.holders.clear()
        commit(self, now)

    _replace(stack, nodes._Proxy, "_commit", without_topics)


@mutant("announced after the answer")
def _(stack: contextlib.ExitStack) -> None:
    proxies = pubsub.server.ownership.proxies.Proxies
    _replace(stack, proxies, "announce", lambda self, changed, change, now: None)


# Subscriptions


@mutant("last-get ID ignored")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    _replace(stack, topic, "acknowledge", lambda self, name, last: True)
    _replace(stack, topic, "reading", lambda self, subscription, position: subscription.backlog)


@mutant("subscription number off")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    original = topic.subscribe

    def subscribe(self: Any, name: str, number: int, opening: int, on: bool, since: int) -> Any:
        subscription = self.subscriptions.get(name)
        if subscription is not None and number < subscription.number:
            subscription.number = number - 1
        return original(self, name, number, opening, on, since)

    _replace(stack, topic, "subscribe", subscribe)


@mutant("same number for two transmissions")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.client.core.subscription.Subscription
    original = subscription.ask

    def ask(self: Any, number: int, epoch: int) -> Any:
        return original(self, self.asked if self.asked > self.number else number, epoch)

    _replace(stack, subscription, "ask", ask)


@mutant("fence off")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.server.topic.topic.Subscription
    _replace(stack, subscription, "outdates", lambda self, number, opening: number < self.number)


@mutant("intent to unsubscribe not stored first")
def _(stack: contextlib.ExitStack) -> None:
    session = pubsub.client.session.Session
    original = session.commit

    def commit(self: Any, changes: Any, *, fsync: bool = False) -> bool:
        kept = [change for change in changes if not (isinstance(change, Intended) and not change.on)]
        return original(self, kept, fsync=fsync)

    _replace(stack, session, "commit", commit)


@mutant("position not committed with what was handled")
def _(stack: contextlib.ExitStack) -> None:
    calls = pubsub.client.core.prefetch.Taking
    _replace(stack, calls, "change", lambda self, topic: [])


# Transfer and join


@mutant("`last` left out of a transfer")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.moves.moves.chunks
    _replace(
        stack,
        pubsub.server.moves.moves,
        "chunks",
        lambda *arguments: (chunk for chunk in original(*arguments) if not chunk.startswith(b'{"last"')),
    )


@mutant("subscriptions left out of a transfer")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.moves.moves.chunks
    _replace(
        stack,
        pubsub.server.moves.moves,
        "chunks",
        lambda *arguments: (chunk for chunk in original(*arguments) if not chunk.startswith(b'{"entries"')),
    )


@mutant("freeze not durable")
def _(stack: contextlib.ExitStack) -> None:
    moves = pubsub.server.moves.moves.Moves
    original = moves._freeze

    def freeze(self: Any, name: str, address: str) -> None:
        with mock.patch.object(self._state.uncommitted, "topic", return_value=None):
            original(self, name, address)

    _replace(stack, moves, "_freeze", freeze)


@mutant("delete before the other's commit")
def _(stack: contextlib.ExitStack) -> None:
    giving = pubsub.server.moves.giving.Giving
    original = giving.pump

    def pump(self: Any, now: float) -> None:
        original(self, now)
        for gift in list(self.gifts.values()):
            if gift.total is not None and not gift.unacknowledged:
                del self.gifts[gift.topic]
                self._given(gift.topic, Transfer(gift.server, gift.topic, "done", gift.transfer), gift.address)

    _replace(stack, giving, "pump", pump)


@mutant("chunk taken out of its order")
def _(stack: contextlib.ExitStack) -> None:
    receiving = pubsub.server.moves.receiving.Receiving
    original = receiving.chunk

    def chunk(self: Any, message: Any, now: float) -> Any:
        incoming = self._find(message, now)
        if incoming is not None and message.chunk > incoming.next:
            incoming.next = message.chunk
        return original(self, message, now)

    _replace(stack, receiving, "chunk", chunk)


@mutant("watermark ignored in a span")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge._Watermarks
    _replace(stack, join, "store", lambda self, counters: 0)


@mutant("`since` ignored in a span")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    original = topic.subscribe
    _replace(
        stack,
        topic,
        "subscribe",
        lambda self, name, number, opening, on, since: original(self, name, number, opening, on, 0),
    )


@mutant("own `last` kept in a join")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge
    original, larger = join.merge, join.larger

    def merge(topic: Any, other: Any, next_watermark: int) -> Any:
        before = dict(topic.last)
        result = original(topic, other, next_watermark)
        topic.last = {**topic.last, **before}
        return result

    assert larger
    _replace(stack, pubsub.server.moves.moves, "merge", merge)


@mutant("joined records end before they are cut")
def _(stack: contextlib.ExitStack) -> None:
    join = pubsub.server.topic.merge
    _replace(
        stack,
        join,
        "cut",
        lambda spans, log, end: tuple(span for span in spans if span.high is not None or span.log != log),
    )


@mutant("the subscription with the lower number wins")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.moves.moves.merge

    def merge(topic: Any, other: Any, next_watermark: int) -> Any:
        for name, subscription in topic.subscriptions.items():
            its = other.subscriptions.get(name)
            if its is not None:
                subscription.number, its.number = its.number, subscription.number
        return original(topic, other, next_watermark)

    _replace(stack, pubsub.server.moves.moves, "merge", merge)


# Whole


@mutant("whole always true for a marked put")
def _(stack: contextlib.ExitStack) -> None:
    puts = pubsub.server.requests.puts.Puts
    original = puts.put
    _replace(stack, puts, "put", lambda self, origin, put, now, whole=False: original(self, origin, put, now, True))


@mutant("whole always true for trimming")
def _(stack: contextlib.ExitStack) -> None:
    retention = pubsub.server.upkeep.retention.Retention
    original = retention.decided
    _replace(stack, retention, "decided", lambda self, asked, whole, now: original(self, asked, True, now))


@mutant("whole always true for a sink's batch")
def _(stack: contextlib.ExitStack) -> None:
    sinks = pubsub.server.requests.sinks.Sinks
    original = sinks.publish
    _replace(
        stack,
        sinks,
        "publish",
        lambda self, origin, request, now, whole=False: original(self, origin, request, now, True),
    )


@mutant("whole always true for a named subscription")
def _(stack: contextlib.ExitStack) -> None:
    subscriptions = pubsub.server.requests.subscriptions.Subscriptions
    original = subscriptions.subscribe_named
    _replace(
        stack,
        subscriptions,
        "subscribe_named",
        lambda self, origin, request, now, whole=False: original(self, origin, request, now, True),
    )


@mutant("whole remembered instead of asked")
def _(stack: contextlib.ExitStack) -> None:
    sole_owner = pubsub.server.ownership.sole_owner.SoleOwner
    ask, decided = sole_owner.ask, sole_owner.decided

    def remembering(self: Any, topic: str, operation: Any, *arguments: Any) -> bool:
        if topic in self.__dict__.setdefault("known", set()):
            self._decided.append((topic, operation, True))
            return True
        return ask(self, topic, operation, *arguments)

    def remembered(self: Any) -> Any:
        for operation, sole in decided(self):
            if sole:
                self.__dict__.setdefault("known", set()).add(getattr(operation, "request", operation).topic)
            yield operation, sole

    _replace(stack, sole_owner, "ask", remembering)
    _replace(stack, sole_owner, "decided", remembered)


# Proxies, heartbeats, retention


@mutant("stale announcement accepted")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.proxy.announcements.judge

    def judge(*arguments: Any) -> Judgement:
        judgement = original(*arguments)
        return Judgement(Verdict.ACCEPT) if judgement.verdict in {Verdict.LATE, Verdict.STALE} else judgement

    _replace(stack, pubsub.proxy.announcements, "judge", judge)


@mutant("heartbeat never expires")
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.base.liveness.Liveness, "alive", _always)


def _always(self: Any, now: float) -> bool:
    return True


@mutant("to whom a topic was given is not said")
def _(stack: contextlib.ExitStack) -> None:
    state = pubsub.server.state.state.State
    _replace(stack, state, "announce_given", lambda self, topic, done: self.announce(topic.name, ""))


@mutant("proxy without a memory speaks for all")
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.proxy.roster.Roster, "awaits", lambda self: "")


@mutant("contested topics not merged")
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.proxy.servers.Servers, "_merge", lambda self, now: setattr(self, "_merged", now))


@mutant("trimmed what is not acknowledged")
def _(stack: contextlib.ExitStack) -> None:
    topic = pubsub.server.topic.topic.Topic
    _replace(stack, topic, "floors", lambda self: {log.id: log.end for log in self.logs.values()})


@mutant("client's second net off")
def _(stack: contextlib.ExitStack) -> None:
    subscription = pubsub.client.core.subscription.Subscription
    _replace(stack, subscription, "taken", property(lambda self: Forgetful()))


@mutant("rest of an iteration dropped by another call")
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

    _replace(stack, gets, "end_chunk", end_chunk)
    _replace(stack, gets, "close_chunk", close_chunk)


@mutant("finished rows stay in the store")
def _(stack: contextlib.ExitStack) -> None:
    outbox = pubsub.client.core.outbox.Outbox
    original = outbox.removals
    _replace(
        stack,
        outbox,
        "removals",
        lambda self: [change for change in original(self) if not isinstance(change, RowsRemoved)],
    )


# Messenger


@mutant("request retired by ACK")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.messenger.core.MessengerCore
    arrived, acknowledged = core._arrived, core._acknowledged

    def arrives(self: Any, peer: Any, message_id: int, source: int, contents: Any, frames: Any, now: float) -> Any:
        if source and message_id and not peer.link.idempotent:
            self._acknowledge(peer, message_id, now)
        return arrived(self, peer, message_id, source, contents, frames, now)

    def acknowledges(self: Any, peer: Any, contents: Any) -> None:
        for pending in peer.pending.values():
            pending.token, pending.request = 0, pending.token
        acknowledged(self, peer, contents)
        for pending in peer.pending.values():
            pending.token = pending.request

    _replace(stack, core, "_arrived", arrives)
    _replace(stack, core, "_acknowledged", acknowledges)
    _replace(stack, pubsub.messenger.pending, "Pending", _Marked)


class _Marked(pubsub.messenger.pending.Pending):
    """A pending message that remembers its callback while its own is hidden."""

    request = 0


@mutant("seen set forgets")
def _(stack: contextlib.ExitStack) -> None:
    seen = pubsub.messenger.seen.Seen
    original = seen.see

    def see(self: Any, message_id: int) -> Any:
        self.__init__()
        return original(self, message_id)

    _replace(stack, seen, "see", see)
