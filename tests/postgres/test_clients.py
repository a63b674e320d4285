"""Clients with their state in PostgreSQL: effect, outgoing messages and position are rows of one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pubsub import embedded
from pubsub.client import AsyncClient, Client, Message, Transaction
from pubsub.client.errors import CommitInDoubt
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, HandlerMisused, PubsubError, StorageError
from tests.client.opened import bodies, names
from tests.postgres.proxy import COMMIT, Cutting
from tests.postgres.server import Postgres


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic{next(names)}"


@pytest.fixture
def network(postgres: Postgres) -> Iterator[Cutting]:
    with Cutting(postgres) as relay:
        yield relay


@pytest.fixture
def client(cluster: Embedded, network: Cutting, database: str) -> Iterator[Client]:
    """A client whose connections to the database go through the relay."""
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text primary key)")
    url = network.url(database.rpartition("/")[2])
    with cluster.client(f"client{next(names)}", database=url, timeout=10.0) as opened:
        yield opened


def ledger(database: str) -> list[str]:
    with psycopg.connect(database) as other:
        return [body for (body,) in other.execute("select body from ledger order by body")]


def note(message: Message, transaction: Transaction) -> None:
    """Write the effect by psycopg's connection."""
    transaction.connection.execute("insert into ledger values (%s)", (message.body.decode(),))


def test_effect_position_and_puts_are_one_transaction(client: Client, database: str, topic: str) -> None:
    client.subscribe(topic)
    client.subscribe(f"{topic}.receipts")
    for body in (b"a", b"b", b"c"):
        client.put(topic, body)

    def handle(message: Message, transaction: Transaction) -> None:
        note(message, transaction)
        client.put(f"{topic}.receipts", b"for " + message.body, transaction=transaction)

    assert client.process(topic, handle, max=2) == 2
    assert ledger(database) == ["a", "b"]

    def fails(message: Message, transaction: Transaction) -> None:
        handle(message, transaction)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        client.process(topic, fails)
    assert ledger(database) == ["a", "b"]
    assert client.process(topic, handle, timeout=30) == 1
    assert ledger(database) == ["a", "b", "c"]
    assert bodies(client, f"{topic}.receipts", 3) == [b"for a", b"for b", b"for c"]


def test_a_client_continues_where_its_database_is(cluster: Embedded, database: str, topic: str) -> None:
    """As after the loss of a pod with its disk: nothing of the first client is left but its database."""
    name = f"client{next(names)}"
    with cluster.client(name, database=database) as first:
        first.subscribe(topic)
        identity = first.publisher_id
        for number in range(5):
            first.put(topic, b"%d" % number)
        for number in range(2):
            message = first.get(topic, timeout=30)
            assert message is not None
            assert message.body == b"%d" % number
    with Client(
        name, proxies=cluster.proxies, context=cluster.context, directory="/nowhere", database=database
    ) as then:
        assert then.publisher_id == identity
        assert then.subscriptions()[topic]["settled"]
        with pytest.raises(CallerError, match="has no state file: its state is in postgresql://"):
            _ = then.path
        assert bodies(then, topic, 3) == [b"2", b"3", b"4"]


def test_a_handler_that_ends_its_transaction_is_told(client: Client, database: str, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"a")

    def commits(message: Message, transaction: Transaction) -> None:
        transaction.connection.commit()

    def executes(message: Message, transaction: Transaction) -> None:
        note(message, transaction)
        transaction.execute("rollback")

    def again(message: Message, transaction: Transaction) -> None:
        note(message, transaction)
        transaction.execute("rollback; begin")

    for handler in (commits, executes, again):
        with pytest.raises(HandlerMisused):
            client.process(topic, handler)
        assert ledger(database) == []
    assert client.process(topic, note) == 1
    assert ledger(database) == ["a"]


def test_a_conflict_of_transactions_counts_as_no_attempt(client: Client, database: str, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"a")
    runs: list[int] = []

    def conflicts(message: Message, transaction: Transaction) -> None:
        runs.append(message.attempts)
        note(message, transaction)
        if len(runs) < 4:
            transaction.execute("do $$begin raise exception using errcode = '40001'; end$$")

    assert client.process(topic, conflicts) == 1
    assert runs == [1, 1, 1, 1]
    assert ledger(database) == ["a"]


def test_a_lost_connection_in_a_handler_is_not_its_failure(
    client: Client, postgres: Postgres, database: str, topic: str
) -> None:
    client.subscribe(topic)
    client.put(topic, b"a")
    attempts: list[int] = []

    def loses(message: Message, transaction: Transaction) -> None:
        attempts.append(message.attempts)
        note(message, transaction)
        if len(attempts) < 3:
            with postgres.connect() as other:
                other.execute("select pg_terminate_backend(%s)", (transaction.connection.info.backend_pid,))
            transaction.execute("select 1")

    for _ in range(2):
        with pytest.raises(StorageError, match="the connection is lost"):
            client.process(topic, loses)
    assert client.process(topic, loses) == 1
    assert attempts == [1, 1, 1]
    assert ledger(database) == ["a"]


@pytest.mark.parametrize("where", ["cut_behind", "cut_before"])
def test_connections_lost_in_commit_change_no_outcome(
    client: Client, network: Cutting, database: str, topic: str, where: str
) -> None:
    """The ledger has each message once, whatever the network does."""
    client.subscribe(topic)
    for number in range(6):
        client.put(topic, b"%d" % number)
    taken = tries = 0
    while taken < 6:
        tries += 1
        setattr(network, where, COMMIT if tries % 2 else None)
        with suppress(StorageError):
            taken += client.process(topic, note, timeout=10, max=1)
    assert network.cuts >= 3
    assert ledger(database) == [str(number) for number in range(6)]


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_commit_in_doubt_the_client_reads_its_state_again(
    cluster: Embedded, network: Cutting, database: str, topic: str, happened: bool
) -> None:
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text primary key)")
    url = network.url(database.rpartition("/")[2])
    settings = ClientSettings(timeout_seconds=0.5)
    with cluster.client(f"client{next(names)}", database=url, settings=settings) as client:
        client.subscribe(topic, timeout=30)
        client.put(topic, b"a", timeout=30)

        def doubtful(message: Message, transaction: Transaction) -> None:
            note(message, transaction)
            setattr(network, "cut_behind" if happened else "cut_before", COMMIT)
            network.refuses = network.cuts_all = True

        with pytest.raises(CommitInDoubt):
            client.process(topic, doubtful, timeout=30)
        with pytest.raises(PubsubError):
            client.put(topic, b"b", timeout=30)
        network.refuses = False
        client.put(topic, b"b", timeout=30)
        taken = 0
        while taken < (1 if happened else 2):
            taken += client.process(topic, note, timeout=30)
        assert ledger(database) == ["a", "b"]


def test_a_client_whose_database_went_back_continues_as_after_a_power_cut(
    client: Client, database: str, topic: str
) -> None:
    client.subscribe(topic)
    client.put(topic, b"a")
    with psycopg.connect(database) as other:
        other.execute("update pubsub.state set commits = commits - 1")
    with pytest.raises(PubsubError):
        client.put(topic, b"b")
    client.put(topic, b"c")
    assert client._session.core.cuts == 1
    assert bodies(client, topic, 2) == [b"a", b"c"]


def test_an_async_client_does_the_same(cluster: Embedded, database: str, topic: str) -> None:
    async def run() -> Any:
        async with cluster.async_client(f"client{next(names)}", database=database) as client:
            await client.subscribe(topic)
            await client.put(topic, b"a")

            async def handle(message: Message, transaction: Transaction) -> None:
                await asyncio.sleep(0)
                await transaction.execute("create table made as select 1 as n")
                await asyncio.sleep(0)
                await client.put(f"{topic}.out", b"b", transaction=transaction)

            assert await client.process(topic, handle) == 1
        assert isinstance(client, AsyncClient)

    asyncio.run(run())
    with psycopg.connect(database) as other:
        assert other.execute("select n from made").fetchone() == (1,)


def test_reliable_http_is_refused(client: Client, tmp_path: Path) -> None:
    from pubsub.http.storage.journal import ClientFile

    with pytest.raises(CallerError, match="name a client without a database"):
        ClientFile(client)
