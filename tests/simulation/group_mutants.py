"""Breakages of the rules of groups (docs/architecture.md, *Groups*), registered with the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pubsub.client.core.groups
import pubsub.client.flows.puts
import pubsub.client.sharing
from pubsub.errors import InDoubt
from tests.simulation.mutants import _replace, mutant
from tests.simulation.train_mutants import MUTANTS, broken

__all__ = ("GROUPS", "MUTANTS", "broken")

GROUPS = (
    "group held though nobody answers",
    "group written in another order",
    "cancelled share written",
    "another caller's result",
    "open group overtaken",
)


@mutant(GROUPS[0])
def _(stack: contextlib.ExitStack) -> None:
    """What waits for an answer that does not come is told to be kept, and is in no outbox."""
    groups, puts = pubsub.client.core.groups, pubsub.client.flows.puts
    write, ended = puts.Puts.write_group, puts.Puts._ended

    def write_group(self: Any, topic: str) -> None:
        if not self.core.outbox.chain(topic).is_busy:
            write(self, topic)

    def tell(self: Any, chain: Any, share: Any, started: float) -> Iterator[Any]:
        if share.row is None and share.error is None and not self.session.over:
            self.core.groups.withdraw(chain.topic, share)
            raise InDoubt(self.session.name, chain.topic, share.until - started, "", 1)
        return (yield from ended(self, chain, share, started))

    _replace(stack, groups, "HOLD_SECONDS", float("inf"))
    _replace(stack, puts.Puts, "write_group", write_group)
    _replace(stack, puts.Puts, "_ended", tell)


@mutant(GROUPS[1])
def _(stack: contextlib.ExitStack) -> None:
    sharing = pubsub.client.sharing
    batches = sharing.batches

    def backwards(shares: Sequence[Any], records: int, size: int) -> Iterator[Any]:
        return batches(shares[::-1], records, size)

    _replace(stack, sharing, "batches", backwards)


@mutant(GROUPS[2])
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.client.core.groups.Groups, "withdraw", lambda self, topic, share: True)


@mutant(GROUPS[3])
def _(stack: contextlib.ExitStack) -> None:
    sharing = pubsub.client.sharing
    put = sharing.Sharing._put

    def swapped(self: Any, topic: str, shares: Sequence[Any]) -> None:
        put(self, topic, shares)
        first, last = shares[0], shares[-1]
        first.row, first.index, last.row, last.index = last.row, last.index, first.row, first.index

    _replace(stack, sharing.Sharing, "_put", swapped)


@mutant(GROUPS[4])
def _(stack: contextlib.ExitStack) -> None:
    _replace(stack, pubsub.client.sharing.Sharing, "close", lambda self, topic: None)
