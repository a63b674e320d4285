"""Breakages of the rules of patterns of topics (docs/explanation/families.md), by the names of the model's rules."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.server.moves.moves
import pubsub.server.ownership.patterns
import pubsub.server.requests.subscriptions
from pubsub.client.core.families import Families
from pubsub.client.core.subscription import Subscription
from pubsub.protocol import Outcome
from pubsub.proxy.patterns import ProxyPatterns
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.topic.topic import Topic
from tests.simulation.breakages.room import Room, substitute

breakage = Room("families: ")


@breakage("all: one proxy's confirmation is enough")
def _(stack: contextlib.ExitStack) -> None:
    original = Families._answered

    def answered(self: Families, family: Any, status: Any, proxy: int, now: float) -> None:
        if status.outcome is Outcome.SUCCESS:
            for other in range(self._core.settings.proxies):
                family.have.setdefault(other, status.stamp)
        original(self, family, status, proxy, now)

    substitute(stack, Families, "_answered", answered)
    # A proxy tells no server of it, so that the others do not learn of it by the way.
    substitute(stack, ProxyPatterns, "_tell", lambda self, server, rows: None)
    stored = ProxyPatterns._answer_stored

    def at_once(self: ProxyPatterns, now: float) -> None:
        for server in self._table.alive(now):
            server.patterns = self.known.digest
        stored(self, now)

    substitute(stack, ProxyPatterns, "_answer_stored", at_once)


@breakage("ask: an answer of a proxy with other patterns lets go")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ServerPatterns, "is_equal", lambda self, digest: True)
    substitute(stack, ProxyPatterns, "_tell", lambda self, server, rows: None)
    stored = ProxyPatterns._answer_stored

    def at_once(self: ProxyPatterns, now: float) -> None:
        for server in self._table.alive(now):
            server.patterns = self.known.digest
        stored(self, now)

    substitute(stack, ProxyPatterns, "_answer_stored", at_once)


@breakage("enter: no entries are made")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, ServerPatterns, "enter", lambda self, topic, denied=(): None)


@breakage("since: a client joins a topic at its end")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.requests.subscriptions.cursor_at

    def at_the_end(topic: Topic, start: Any, stamp: int, skew: int, reader: Any) -> Any:
        return original(topic, "latest" if isinstance(start, int) else start, stamp, skew, reader)

    substitute(stack, pubsub.server.requests.subscriptions, "cursor_at", at_the_end)


@breakage("off: servers keep their entries for ended patterns")
def _(stack: contextlib.ExitStack) -> None:
    original = ServerPatterns._end

    def end(self: ServerPatterns, topic: Topic, key: str, number: int) -> None:
        subscriber, _, pattern = key.removeprefix("*").partition(":")
        if self.known.rows[subscriber, pattern].on:
            original(self, topic, key, number)

    substitute(stack, ServerPatterns, "_end", end)


@breakage("apart: a server's entry has the key and the number of the client's subscription")
def _(stack: contextlib.ExitStack) -> None:
    original = Subscription.ask

    def ask(self: Subscription, number: int, epoch: int) -> Any:
        return original(self, self.joined or number, epoch)

    substitute(stack, pubsub.server.ownership.patterns, "pattern_key", lambda subscriber, pattern: subscriber)
    substitute(stack, ServerPatterns, "_covers", lambda self, topic, row: False)
    substitute(stack, Subscription, "ask", ask)


@breakage("list: the client asks for matching topics once")
def _(stack: contextlib.ExitStack) -> None:
    original = Families._join

    def join(self: Families, family: Any, topics: list[str], now: float) -> None:
        if family.version == 0:
            original(self, family, topics, now)

    substitute(stack, Families, "_join", join)


@breakage("keep: what a subscriber to a pattern has at the giver stays behind in a merge")
def _(stack: contextlib.ExitStack) -> None:
    original = pubsub.server.moves.moves.merge

    def without(topic: Topic, other: Topic, *rest: Any) -> Any:
        kept = {
            key: one for key, one in other.subscriptions.items() if key[0] not in "*f" or key in topic.subscriptions
        }
        other.subscriptions = kept
        return original(topic, other, *rest)

    substitute(stack, pubsub.server.moves.moves, "merge", without)
