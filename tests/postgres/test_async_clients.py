"""An `AsyncClient` with its state in PostgreSQL: the event loop goes on while the database works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest

from pubsub import embedded
from pubsub.client import AsyncClient, Message, Transaction
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, HandlerMisused, StorageError
from tests.client.opened import names
from tests.postgres.server import Postgres
from tests.postgres.stores import name_of

PATIENCE_SECONDS = 12.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text primary key)")
    return database


def ledger(database: str) -> list[str]:
    with psycopg.connect(database) as other:
        return [body for (body,) in other.execute("select body from ledger order by body")]


def run(cluster: Embedded, database: str, work: Callable[[AsyncClient, str], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with cluster.async_client(f"client{next(names)}", database=database, timeout=20.0) as client:
            topic = f"topic{next(names)}"
            await client.subscribe(topic)
            await asyncio.wait_for(work(client, topic), 2 * PATIENCE_SECONDS)

    asyncio.run(main())


async def note(message: Message, transaction: Transaction) -> None:
    await transaction.execute("insert into ledger values (%s)", (message.body.decode(),))


async def waits(observer: psycopg.Connection[Any], what: str) -> None:
    """Let other tasks run until a backend waits for a lock. This loop must go on meanwhile."""
    until = time.monotonic() + PATIENCE_SECONDS
    while observer.execute("select count(*) from pg_locks where not granted").fetchone() == (0,):
        assert time.monotonic() < until, what
        await asyncio.sleep(0.001)


def test_the_event_loop_goes_on_while_a_commit_waits(cluster: Embedded, shop: str) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"first")
        with psycopg.connect(shop) as holder, psycopg.connect(shop, autocommit=True) as observer:
            holder.execute("set idle_in_transaction_session_timeout = '90s'")  # Otherwise a stalled loop hangs here.
            holder.execute("select from pubsub.state for update")
            putting = asyncio.create_task(client.put(topic, b"second"))
            await waits(observer, "the put waits for the row of the client")
            assert not putting.done()
            holder.rollback()
            await putting

    run(cluster, shop, work)


def test_a_handler_waits_with_its_transaction_open_and_others_go_on(cluster: Embedded, shop: str) -> None:
    """Two handlers wait for each other, each with a row written, while the client puts."""

    async def work(client: AsyncClient, topic: str) -> None:
        await client.put_many(topic, [b"a", b"b"])
        both = asyncio.Barrier(2)

        async def handle(message: Message, transaction: Transaction) -> None:
            await note(message, transaction)
            await both.wait()
            await client.put(f"{topic}.free", message.body)
            await client.put(f"{topic}.out", message.body, transaction=transaction)

        await client.subscribe(f"{topic}.out")
        assert await client.process(topic, handle, max=2, hold="none", concurrency=2) == 2
        assert sorted([(await client.get(f"{topic}.out")).body for _ in range(2)]) == [b"a", b"b"]  # type: ignore[union-attr]

    run(cluster, shop, work)
    assert ledger(shop) == ["a", "b"]


def test_handlers_that_wait_for_each_others_rows_do_not_stop_the_loop(cluster: Embedded, shop: str) -> None:
    """One handler waits for a row of the other, which commits meanwhile."""

    async def work(client: AsyncClient, topic: str) -> None:
        await client.put_many(topic, [b"a", b"b"])
        order: list[bytes] = []
        with psycopg.connect(shop, autocommit=True) as observer:

            async def handle(message: Message, transaction: Transaction) -> None:
                await transaction.execute("insert into ledger values ('same') on conflict do nothing")
                if not order:
                    order.append(message.body)
                    await waits(observer, "the other handler waits for the row")

            assert await client.process(topic, handle, max=2, hold="none", concurrency=2) == 2

    run(cluster, shop, work)
    assert ledger(shop) == ["same"]


def test_the_connection_is_psycopgs_awaited_one(cluster: Embedded, shop: str) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")
        await client.put(topic, b"b")

        async def handle(message: Message, transaction: Transaction) -> None:
            with pytest.raises(CallerError, match=r"await transaction\.begin"):
                _ = transaction.connection
            connection = await transaction.begin()
            assert isinstance(connection, psycopg.AsyncConnection)
            assert connection is transaction.connection
            with pytest.raises(HandlerMisused, match=r"connection.commit\(\) is not for a transaction of the client"):
                await connection.commit()
            async with connection.transaction():
                await connection.execute("insert into ledger values (%s)", (message.body.decode(),))
            with pytest.raises(psycopg.errors.UniqueViolation):
                async with connection.transaction():
                    await connection.execute("insert into ledger values (%s)", (message.body.decode(),))

        taken = 0
        while taken < 2:
            taken += await client.process(topic, handle)

    run(cluster, shop, work)
    assert ledger(shop) == ["a", "b"]


def test_a_failed_handler_leaves_nothing_and_its_message_comes_again(cluster: Embedded, shop: str) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")

        async def fails(message: Message, transaction: Transaction) -> None:
            await note(message, transaction)
            raise ValueError("no")

        async def ends(message: Message, transaction: Transaction) -> None:
            await note(message, transaction)
            await transaction.execute("rollback")
            await transaction.execute("begin")

        def forgets(message: Message, transaction: Transaction) -> None:
            statement = transaction.execute("select 1")
            statement.close()

        with pytest.raises(ValueError, match="no"):
            await client.process(topic, fails)
        with pytest.raises(HandlerMisused, match="a statement ended the transaction"):
            await client.process(topic, ends)
        with pytest.raises(HandlerMisused, match="was not awaited"):
            await client.process(topic, forgets)
        assert ledger(shop) == []
        assert await client.process_many(topic, lambda messages, transaction: note(messages[0], transaction)) == 1

    run(cluster, shop, work)
    assert ledger(shop) == ["a"]


def test_a_lost_connection_is_not_the_handlers_failure(cluster: Embedded, shop: str, postgres: Postgres) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")
        attempts: list[int] = []

        async def loses(message: Message, transaction: Transaction) -> None:
            attempts.append(message.attempts)
            await note(message, transaction)
            if len(attempts) < 2:
                with postgres.connect() as other:
                    pid = transaction.connection.info.backend_pid
                    other.execute("select pg_terminate_backend(%s)", (pid,))
                await transaction.execute("select 1")

        with pytest.raises(StorageError, match="the connection is lost"):
            await client.process(topic, loses)
        assert await client.process(topic, loses) == 1
        assert attempts == [1, 1]

    run(cluster, shop, work)
    assert ledger(shop) == ["a"]


def test_a_cancelled_handler_is_rolled_back_and_its_message_comes_again(cluster: Embedded, shop: str) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")
        begun = asyncio.Event()

        async def hangs(message: Message, transaction: Transaction) -> None:
            await note(message, transaction)
            begun.set()
            await transaction.execute("select pg_sleep(300)")

        processing = asyncio.create_task(client.process(topic, hangs))
        await begun.wait()
        processing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await processing
        assert ledger(shop) == []
        seen: list[int] = []

        async def handle(message: Message, transaction: Transaction) -> None:
            seen.append(message.attempts)
            await note(message, transaction)

        assert await client.process(topic, handle) == 1
        assert seen == [1]

    run(cluster, shop, work)
    assert ledger(shop) == ["a"]


def test_with_a_stricter_isolation_handlers_await_first(cluster: Embedded, shop: str) -> None:
    with psycopg.connect(shop) as other:
        other.execute(f"alter database {name_of(shop)} set default_transaction_isolation = 'serializable'")

    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")

        async def plain(message: Message, transaction: Transaction) -> None:
            await asyncio.sleep(0)
            assert transaction.execute("show transaction_isolation").fetchone() == ("serializable",)
            assert await transaction.begin() is transaction.connection

        async def waiting(message: Message, transaction: Transaction) -> None:
            await plain(message, transaction)
            await asyncio.sleep(0)

        with pytest.raises(HandlerMisused, match="await first, then use the transaction"):
            await client.process(topic, waiting)
        assert await client.process(topic, plain) == 1

    run(cluster, shop, work)


def test_a_client_is_closed_twice(cluster: Embedded, shop: str) -> None:
    async def work(client: AsyncClient, topic: str) -> None:
        await client.close()
        with pytest.raises(CallerError, match="is closed"):
            await client.put(topic, b"a")

    run(cluster, shop, work)


@pytest.mark.parametrize("by", ["cancel", "timeout"])
def test_a_call_that_is_cancelled_within_its_commit_returns_what_it_took(cluster: Embedded, shop: str, by: str) -> None:
    """The position is committed, so the message must reach the caller; its next await has the cancellation."""

    async def work(client: AsyncClient, topic: str) -> None:
        await client.put(topic, b"a")
        found: list[bytes] = []
        ended = asyncio.Event()

        async def take() -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                message = await client.get(topic, timeout=PATIENCE_SECONDS)
                assert message is not None
                found.append(message.body)
                try:
                    await asyncio.sleep(PATIENCE_SECONDS)
                finally:
                    ended.set()

        limits: list[asyncio.Timeout] = []
        with psycopg.connect(shop) as holder, psycopg.connect(shop, autocommit=True) as observer:
            holder.execute("select from pubsub.state for update")
            taking = asyncio.create_task(take())
            await waits(observer, "the position waits for the row of the client")
            if by == "cancel":
                taking.cancel()
            else:
                limits[0].reschedule(asyncio.get_running_loop().time())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            holder.rollback()
            with pytest.raises(asyncio.CancelledError if by == "cancel" else TimeoutError):
                await taking
        assert found == [b"a"]
        assert ended.is_set()

    run(cluster, shop, work)
