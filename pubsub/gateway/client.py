"""The client as the gateway uses it: an `AsyncClient` whose commits hold the gateway's own rows too.

What makes the gateway exactly-once is that its state has no file of its own: an idempotency key is written in the
commit of its put, and what a subscriber is handed in the commit that takes it (docs/architecture.md, *Put: the chain*).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pubsub.client import AsyncClient, Batch, Transaction
from pubsub.client.contents import Contents, split
from pubsub.client.core.chain import Row
from pubsub.client.flows.work import Work
from pubsub.client.steps import guarded
from pubsub.errors import PubsubError

Result = TypeVar("Result")
Bindings = Sequence[Any]


class GatewayClient(AsyncClient):
    """A client whose commits can hold rows of the gateway."""

    def read(self, statement: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """The rows of a question to the gateway's tables in this client's file."""

        def rows() -> list[tuple[Any, ...]]:
            with self._session.entered():
                return list(self._session.store.db.execute(statement, bindings))

        return guarded(self._session, rows)

    def write(self, function: Callable[[Transaction], Result]) -> Result:
        """Call a function with a transaction that outlives the process, though maybe not a power cut; what it said.

        Raises:
            StorageError: it could not be committed; nothing of it happened.
        """

        def work() -> Result:
            session = self._session
            with session.entered(), Work(session, tuple, fsync=False) as transaction:
                return function(transaction)

        return guarded(self._session, work)

    async def write_synced(self, function: Callable[[Transaction], Result]) -> Result:
        """As `write`, fsynced, on a thread: the event loop does not wait for the disk."""

        def work() -> Result:
            with self.transaction() as transaction:
                return function(transaction)

        return await asyncio.to_thread(work)

    async def hand_on(self, topic: str, most: int, sink: Callable[[Batch, Transaction], object], timeout: float) -> int:
        """Take up to `most` messages in one commit with what `sink` writes; how many they were, 0: none came.

        Raises:
            As `AsyncClient.get`.
        """
        return await self._run(self._calls.gets.hand_on(topic, most, sink, timeout, fsync=False))

    async def put_rows(self, topic: str, contents: Contents, timeout: float) -> list[Row]:
        """Put messages into the outbox and on their way; the outbox's rows, which `settle` waits for."""
        return await self._run(self._calls.puts.put_contents(topic, contents, timeout, None, wait=False))

    def check_put(self, topic: str) -> None:
        """See that a topic can be put to.

        Raises:
            InvalidName: it cannot.
        """
        self._calls.puts.check_put(topic)

    def add_puts(self, topic: str, contents: Contents, transaction: Transaction) -> list[Row]:
        """Put messages in the commit of a transaction, on whichever thread has it."""
        return transaction.put_batches(topic, split(contents))

    async def settle(self, row: Row, timeout: float) -> None:
        """Wait until a row, and all before it on its topic, are on the server's disk.

        Raises:
            As `AsyncClient.put`.
        """
        session = self._session
        chain = session.core.outbox.chain(row.topic)
        await self._run(self._calls.puts.settle([chain], session.now + timeout, row))

    async def finish(self, topic: str, counter: int, timeout: float) -> None:
        """Wait until what was put under a counter is on the server's disk, whichever start of the gateway put it.

        Raises:
            As `AsyncClient.flush`.
        """
        rows = self._session.core.outbox.chain(topic).rows
        if rows and rows[0].counter <= counter:
            await self._run(self._calls.puts.flush_topic(topic, timeout))

    def opened_elsewhere(self, topic: str) -> PubsubError | None:
        """What keeps this client from receiving a topic for good, until it subscribes again; None: nothing."""
        sub = self._session.core.subscriptions.get(topic)
        return None if sub is None else sub.failure

    def subscribed(self, topic: str) -> bool:
        """Whether a topic is subscribed to, confirmed or not."""
        sub = self._session.core.subscriptions.get(topic)
        return sub is not None and sub.intent.on

    def forget_losses(self, topic: str, forget: Callable[[Transaction], None]) -> None:
        """Have a transaction forget what is lost of a topic, and tell nobody of it any more."""
        self.write(forget)
        with self._session.entered():
            sub = self._session.core.subscriptions.get(topic)
            if sub is not None:
                sub.losses.clear()

    def outbox_bytes(self) -> int:
        """Bytes of puts that are not acknowledged yet."""
        return self._session.core.outbox.bytes

    def make_tables(self, statements: Iterable[str]) -> None:
        """Make the gateway's tables where they are not there yet."""

        def make(transaction: Transaction) -> None:
            for statement in statements:
                transaction.execute(statement)

        self.write(make)
