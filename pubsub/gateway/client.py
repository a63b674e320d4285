"""The gateway's client: an `AsyncClient` with rows of the gateway's own tables in its commits.

The gateway is exactly-once because it keeps no state in a second file. The commit of a put contains its idempotency
key. The commit that takes a message from the service also stores it for its subscriber (docs/explanation/gateway.md,
H1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pubsub.client import AsyncClient, Batch, Transaction
from pubsub.client.batch_contents import BatchContents, split
from pubsub.client.core.chain import Row
from pubsub.client.core.group_request import Wish
from pubsub.client.flows.group_processing import BEFORE, GroupProcessing
from pubsub.client.flows.handlers import AsyncHandler
from pubsub.client.flows.work import Work
from pubsub.client.flows.worker_pool_tasks import in_tasks
from pubsub.client.steps import guarded
from pubsub.errors import PubsubError
from pubsub.protocol.group_bodies import GroupValues
from pubsub.protocol.names import Start
from pubsub.protocol.patterns import matches

Result = TypeVar("Result")
Bindings = Sequence[Any]


class GatewayClient(AsyncClient):
    def query(self, statement: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query to this client's file."""

        def rows() -> list[tuple[Any, ...]]:
            with self._session.entered():
                return list(self._session.store.query(statement, bindings))

        return guarded(self._session, rows)

    def write(self, function: Callable[[Transaction], Result]) -> Result:
        """Call a function with a transaction, commit, and return the function's result.

        The commit survives the end of the process, but perhaps not a power failure.

        Raises:
            StorageError: the commit failed; none of its changes happened.
        """

        def work() -> Result:
            session = self._session
            with session.entered(), Work(session, tuple, fsync=False) as transaction:
                return function(transaction)

        return guarded(self._session, work)

    async def write_synced(self, function: Callable[[Transaction], Result]) -> Result:
        """Do the same with fsync, on a thread, so that the event loop does not wait for the disk."""

        def work() -> Result:
            with self.transaction() as transaction:
                return function(transaction)

        return await asyncio.to_thread(work)

    async def hand_on(self, topic: str, most: int, sink: Callable[[Batch, Transaction], object], timeout: float) -> int:
        """Take up to `most` messages, in one commit with the rows that `sink` writes. Return their number, 0 for none.

        Raises:
            As `AsyncClient.get`.
        """
        return await self._run(self._calls.gets.hand_on(topic, most, sink, timeout, fsync=False))

    async def join(self, topic: str, group: str, wish: Wish) -> GroupValues:
        """Join a consumer group, or make it; return its values."""
        await self._run(self._calls.group_waits.subscribe(topic, group, wish, None))
        return self._session.core.members[topic, group].values

    def joined(self, topic: str, group: str) -> bool:
        """Return whether the client is a member of a consumer group."""
        member = self._session.core.members.get((topic, group))
        return member is not None and bool(member.number)

    async def subscribe_from(self, topic: str, start: Start | None, *, fresh: bool) -> None:
        """Subscribe as `AsyncClient.subscribe`, with the protocol's form of a start; None: at the end."""
        await self._run(self._calls.subscribing.intend(topic, True, None, fresh=fresh, start=start))

    async def seek_with(self, topic: str, start: Start, clear: Callable[[Transaction], None]) -> int:
        """Move a subscription as `AsyncClient.seek`; the rows that `clear` deletes go in the commit that begins it."""
        await asyncio.to_thread(self._look_back.check_held, topic, start)
        return await self._run(self._calls.subscribing.seek(topic, start, None, also=clear))

    async def put_rows(self, topic: str, contents: BatchContents, timeout: float) -> list[Row]:
        """Put messages into the outbox and send them. Return the outbox rows, for `settle`."""
        return await self._run(self._calls.puts.put_contents(topic, contents, timeout, None, wait=False))

    def check_put(self, topic: str) -> None:
        """Check that puts to a topic are possible.

        Raises:
            InvalidName: they are not.
        """
        self._calls.puts.check_put(topic)

    def add_puts(self, topic: str, contents: BatchContents, transaction: Transaction) -> list[Row]:
        """Put messages in the commit of a transaction; callable on the transaction's thread."""
        return transaction.put_batches(topic, split(contents))

    async def settle(self, row: Row, timeout: float) -> None:
        """Wait until a row, and all earlier rows of its topic, are on the server's disk.

        Raises:
            As `AsyncClient.put`.
        """
        session = self._session
        chain = session.core.outbox.chain(row.topic)
        await self._run(self._calls.puts.settle([chain], session.now + timeout, row))

    async def finish(self, topic: str, counter: int, timeout: float) -> None:
        """Wait until the put with a counter is on the server's disk, even if an earlier run of the gateway made it.

        Raises:
            As `AsyncClient.flush`.
        """
        rows = self._session.core.outbox.chain(topic).rows
        if rows and rows[0].counter <= counter:
            await self._run(self._calls.puts.flush_topic(topic, timeout))

    def opened_elsewhere(self, topic: str) -> PubsubError | None:
        """Return the error that blocks receiving from a topic until a new subscription; None if there is none."""
        sub = self._session.core.subscriptions.get(topic)
        return None if sub is None else sub.failure

    def subscribed(self, topic: str) -> bool:
        """Return whether the client subscribes to a topic or pattern, confirmed by the service or not."""
        core = self._session.core
        sub, family = core.subscriptions.get(topic), core.families.get(topic)
        return (sub is not None and sub.intent.on) or (family is not None and family.on)

    def forget_losses(self, topic: str, forget: Callable[[Transaction], None]) -> None:
        """Delete the losses of a topic, or of a pattern, in a transaction, and stop reporting them."""
        self.write(forget)
        with self._session.entered():
            for name, sub in self._session.core.subscriptions.items():
                if matches(topic, name):
                    sub.losses.clear()

    def count_expired(self) -> None:
        """Count a message that was not delivered, because its time to live had ended."""
        self._session.counters["expired"] += 1

    def outbox_bytes(self) -> int:
        return self._session.core.outbox.bytes

    def make_tables(self, statements: Iterable[str]) -> None:
        """Create the gateway's tables if they do not exist."""

        def make(transaction: Transaction) -> None:
            for statement in statements:
                transaction.execute(statement)

        self.write(make)


class GroupTaking:
    """One call that takes messages of a consumer group, each claimed before its handler begins.

    Args:
        client: a member of the group.
        most: limit of messages, and of handlers at a time.

    Raises:
        NotSubscribed: the client is no member.
    """

    def __init__(self, client: GatewayClient, topic: str, group: str, most: int) -> None:
        self._client, self._most = client, most
        waits = client._calls.group_waits
        self._source = GroupProcessing(waits, waits.member_of(topic, group), most, most, BEFORE, client._run_flow)

    async def run(self, handler: AsyncHandler, wait: float) -> int:
        """Pass messages to a handler until all handlers have ended; return the number of those that are done.

        Args:
            wait: seconds to wait for the first message.

        Raises:
            As `AsyncClient.process`.
        """
        client = self._client
        session, run, lead = client._session, client._run, client._run_here
        return await in_tasks(session, self._source, handler, wait, self._most, self._most, run, client._breathe, lead)

    def stop(self) -> None:
        """Take no further message."""
        self._source.stop()
