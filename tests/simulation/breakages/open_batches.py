"""Breakages of the rules of open batches (docs/explanation/batches.md, *Open batches*)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pubsub.client.accumulator
import pubsub.client.core.groups
import pubsub.client.flows.puts
from pubsub.errors import InDoubt
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("group held though nobody answers")
def _(stack: contextlib.ExitStack) -> None:
    """A put in a group that times out is reported as kept, and is in no outbox."""
    groups, puts = pubsub.client.core.groups, pubsub.client.flows.puts.Puts
    write, ended = puts.write_group, puts._ended

    def write_group(self: Any, topic: str) -> None:
        if not self.core.outbox.chain(topic).is_busy:
            write(self, topic)

    def tell(self: Any, chain: Any, share: Any, started: float) -> Iterator[Any]:
        if share.row is None and share.error is None and not self.session.over:
            self.core.groups.withdraw(chain.topic, share)
            raise InDoubt(self.session.name, chain.topic, share.until - started, "", 1)
        return (yield from ended(self, chain, share, started))

    substitute(stack, groups, "HOLD_SECONDS", float("inf"))
    substitute(stack, puts, "write_group", write_group)
    substitute(stack, puts, "_ended", tell)


@breakage("group written in another order")
def _(stack: contextlib.ExitStack) -> None:
    accumulator = pubsub.client.accumulator
    batches = accumulator.batches

    def backwards(shares: Sequence[Any], records: int, size: int) -> Iterator[Any]:
        return batches(shares[::-1], records, size)

    substitute(stack, accumulator, "batches", backwards)


@breakage("cancelled share written")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.core.groups.Groups, "withdraw", lambda self, topic, share: True)


@breakage("another caller's result")
def _(stack: contextlib.ExitStack) -> None:
    accumulator = pubsub.client.accumulator.Accumulator
    write = accumulator._write

    def swapped(self: Any, chain: Any, shares: Sequence[Any], *own: Any) -> Any:
        rows = write(self, chain, shares, *own)
        if shares:
            first, last = shares[0], shares[-1]
            first.row, first.index, last.row, last.index = last.row, last.index, first.row, first.index
        return rows

    substitute(stack, accumulator, "_write", swapped)


@breakage("open group overtaken")
def _(stack: contextlib.ExitStack) -> None:
    accumulator = pubsub.client.accumulator.Accumulator
    put = accumulator.put

    def overtaking(self: Any, chain: Any, *own: Any) -> Any:
        groups = self._session.core.groups
        due, groups._due = groups._due, {}
        try:
            return put(self, chain, *own)
        finally:
            groups._due = due

    substitute(stack, accumulator, "put", overtaking)
    substitute(stack, accumulator, "close", lambda self, topic: None)
