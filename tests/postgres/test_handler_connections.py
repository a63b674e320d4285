"""Handlers with connections of their own: an open transaction of one blocks neither the client nor another handler."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from pubsub import embedded
from pubsub.client import Client, Message, Transaction
from pubsub.client.storage.postgres import handler_pool
from pubsub.client.storage.postgres.handler_database import HandlerDatabase
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.embedded import Embedded
from pubsub.errors import AfterFork, HandlerMisused, StorageError
from tests.client.opened import bodies, names
from tests.faults.cluster import until
from tests.postgres.behind_relay import network, store
from tests.postgres.proxy import COMMIT, Cutting
from tests.postgres.server import Postgres
from tests.postgres.stores import counters, name_of, opened, row

__all__ = ["network", "store"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def client(cluster: Embedded, database: str) -> Iterator[Client]:
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text primary key)")
    with cluster.client(f"client{next(names)}", database=database, timeout=20.0) as made:
        yield made


def begun(store: PostgresStore) -> HandlerDatabase:
    own = store.handler_database()
    assert own is not None
    own.begin()
    return own


def ledger(database: str) -> list[str]:
    with psycopg.connect(database) as other:
        return [body for (body,) in other.execute("select body from ledger order by body")]


# Clients


def test_an_open_transaction_of_a_handler_blocks_neither_puts_nor_another_handler(
    client: Client, database: str
) -> None:
    """Each handler has its transaction open until the other one has, too, and the client has put a message."""
    topic = f"topic{next(names)}"
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    both, put = threading.Barrier(3), threading.Event()

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into ledger values (%s)", (message.body.decode(),))
        both.wait(60)
        assert put.wait(60)
        client.put(f"{topic}.out", b"of " + message.body, transaction=transaction)

    client.subscribe(f"{topic}.out")
    taken: list[int] = []
    worker = threading.Thread(
        target=lambda: taken.append(client.process(topic, handle, max=2, hold="none", concurrency=2))
    )
    worker.start()
    both.wait(60)
    client.put(f"{topic}.out", b"between")
    put.set()
    worker.join()
    assert taken == [2]
    assert ledger(database) == ["a", "b"]
    found = bodies(client, f"{topic}.out", 3)
    assert found[0] == b"between"
    assert sorted(found[1:]) == [b"of a", b"of b"]


def test_numbers_of_a_handlers_puts_are_known_after_the_commit(client: Client) -> None:
    topic = f"topic{next(names)}"
    client.subscribe(topic)
    client.put(topic, b"a")
    found: list[Any] = []

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("select 1")
        one = client.put(f"{topic}.out", b"1", transaction=transaction)
        many = client.put_many(f"{topic}.out", [b"2", b"3"], transaction=transaction)
        assert [one.counter, *many] == [0, 0, 0]
        assert len(many) == 2
        found.extend((one, many))

    client.subscribe(f"{topic}.out")
    assert client.process(topic, handle) == 1
    messages = list(client.get_many(f"{topic}.out", 1, timeout=20))
    while len(messages) < 3:
        messages += client.get_many(f"{topic}.out", 3, timeout=20)
    one, many = found
    assert [message.counter for message in messages] == [one.counter, *many]


def test_a_request_of_a_handler_is_kept_once(client: Client) -> None:
    topic, service = f"topic{next(names)}", f"service{next(names)}"
    client.request(service, b"first", id="first")
    client.subscribe(topic)
    client.put(topic, b"a")

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("select 1")
        assert client.request(service, b"work", id="named", transaction=transaction) == "named"

    def again(message: Message, transaction: Transaction) -> None:
        handle(message, transaction)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        client.process(topic, again)
    assert [call.id for call in client.calls()] == ["first"]
    assert client.process(topic, handle, timeout=20) == 1
    client.put(topic, b"b")
    assert client.process(topic, handle, timeout=20) == 1
    assert [call.id for call in client.calls()] == ["first", "named"]
    assert client.unfinished(f"$calls.{service}") == 2


def test_deferred_checks_fail_the_handler(client: Client, database: str) -> None:
    topic = f"topic{next(names)}"
    with psycopg.connect(database) as other:
        other.execute("create table child (body text references ledger deferrable initially deferred)")
    client.subscribe(topic)
    client.put(topic, b"a")

    def orphan(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into child values ('a')")

    def both(message: Message, transaction: Transaction) -> None:
        orphan(message, transaction)
        transaction.execute("insert into ledger values ('a')")

    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        client.process(topic, orphan)
    assert client.process(topic, both, timeout=20) == 1
    assert ledger(database) == ["a"]


def test_a_deferred_check_that_waits_for_another_handler_lets_it_commit(client: Client, database: str) -> None:
    """The check waits without the session's lock, which the other handler needs: PostgreSQL sees no such deadlock."""
    topic = f"topic{next(names)}"
    with psycopg.connect(database) as other:
        other.execute("create table seat (body text unique deferrable initially deferred)")
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    both = threading.Barrier(2)

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into seat values ('1')")
        both.wait(20)

    with pytest.raises(Exception, match="duplicate key"):
        client.process(topic, handle, timeout=20, hold="none", concurrency=2)
    with psycopg.connect(database) as other:
        assert other.execute("select body from seat").fetchall() == [("1",)]


def test_handlers_wait_for_a_connection(client: Client, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_pool, "HANDLER_CONNECTIONS_MAX", 2)
    topic = f"topic{next(names)}"
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(6)])
    pids: set[int] = set()

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into ledger values (%s)", (message.body.decode(),))
        pids.add(transaction.connection.info.backend_pid)

    taken = 0
    while taken < 6:
        taken += client.process(topic, handle, hold="none", concurrency=6, timeout=20)
    assert ledger(database) == [str(number) for number in range(6)]
    assert len(pids) <= 2


def test_a_client_of_a_stricter_isolation_keeps_it(cluster: Embedded, database: str) -> None:
    with psycopg.connect(database) as other:
        other.execute(f"alter database {name_of(database)} set default_transaction_isolation = 'serializable'")
    topic = f"topic{next(names)}"
    with cluster.client(f"client{next(names)}", database=database) as client:
        client.subscribe(topic)
        client.put(topic, b"a")
        found: list[Any] = []

        def handle(message: Message, transaction: Transaction) -> None:
            found.append(transaction.execute("show transaction_isolation").fetchone())

        assert client.process(topic, handle) == 1
    assert found == [("serializable",)]


def test_a_child_process_of_a_handler_does_not_use_its_connection(client: Client, database: str) -> None:
    topic = f"topic{next(names)}"
    client.subscribe(topic)
    client.put(topic, b"a")
    codes: list[int] = []

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into ledger values ('a')")
        child = os.fork()
        if not child:
            try:
                transaction.execute("insert into ledger values ('b')")
            except AfterFork:
                os._exit(7)
            finally:
                os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert client.process(topic, handle) == 1
    assert codes == [7]
    assert ledger(database) == ["a"]


# A connection that is lost in a commit


@pytest.mark.parametrize(("where", "happened"), [("cut_answer", True), ("cut_before", False)])
def test_the_sessions_connection_decides_a_commit_whose_answer_was_lost(
    store: PostgresStore, network: Cutting, where: str, happened: bool
) -> None:
    own, session = begun(store), store.connection
    own.execute("create table made as select 1 as n")
    setattr(network, where, COMMIT)
    if happened:
        own.end(lambda: [row(2)])
    else:
        with pytest.raises(StorageError, match="the connection is lost"):
            own.end(lambda: [row(2)])
        own.undo(StorageError("", ""))
    assert store.connection is session
    assert counters(store) == ([1, 2] if happened else [1])
    store.sync()
    store.commit([row(3)])
    again = begun(store)
    again.end(lambda: [row(4)])
    assert counters(store) == ([1, 2, 3, 4] if happened else [1, 3, 4])


def test_a_commit_that_hangs_after_its_connection_is_lost_is_ended(
    store: PostgresStore, network: Cutting, postgres: Postgres, database: str
) -> None:
    """Its backend has the row of the client locked, and waits in a deferred trigger."""
    with postgres.connect(name_of(database)) as other:
        other.execute("create table gate (n int); create table slow (n int)")
        other.execute(
            "create function wait() returns trigger language plpgsql as"
            " 'begin perform count(*) from gate; return null; end'"
        )
        other.execute(
            "create constraint trigger waits after insert on slow deferrable initially deferred"
            " for each row execute function wait()"
        )
    own = begun(store)
    own.execute("insert into slow values (1)")
    with psycopg.connect(database) as gate:
        gate.execute("lock table gate")
        network.cut_behind = COMMIT
        with pytest.raises(StorageError, match="the connection is lost"):
            own.end(lambda: [row(2)])
    own.undo(StorageError("", ""))
    assert counters(store) == [1]
    store.commit([row(3)])
    assert counters(store) == [1, 3]


def test_a_late_commit_of_a_lost_connection_cannot_happen_any_more(store: PostgresStore) -> None:
    """The number of the commit in doubt is used up, so `pubsub.step` refuses it."""
    own = begun(store)
    number, mark = store._life.commits + 1, own._mark
    store._unsure, store._doubtful = True, begun(store).connection
    assert store._fence() is False
    with pytest.raises(psycopg.ProgrammingError, match="another life has the client open, or commits are missing"):
        own.connection.execute(f"select pubsub.step('billing', '{store._life.token}', {number}, '{mark}')")
    own.undo(ValueError())
    store.commit([row(2)])
    assert counters(store) == [1, 2]


def test_a_statement_that_ends_the_transaction_is_found(store: PostgresStore) -> None:
    for statements in (["rollback", "begin"], ["commit", "begin"], ["rollback and chain"]):
        own = begun(store)
        for statement in statements:
            own.execute(statement)
        with pytest.raises(HandlerMisused, match="a statement ended the transaction"):
            own.end(lambda: [row(2)])
        own.undo(HandlerMisused(""))
    assert counters(store) == [1]


def test_a_connection_to_another_server_commits_nothing(store: PostgresStore) -> None:
    """As when a replica was promoted, and the client's own connection leads to the old primary still."""
    own = begun(store)
    own.connection.place = own.connection.place._replace(timeline="00000002")
    with pytest.raises(StorageError, match="another server than that of the client"):
        own.end(lambda: [row(2)])
    own.undo(StorageError("", ""))
    assert counters(store) == [1]
    begun(store).end(lambda: [row(2)])
    assert counters(store) == [1, 2]


def test_the_next_life_ends_transactions_that_were_left_open(
    store: PostgresStore, postgres: Postgres, database: str
) -> None:
    """As of a process that was stopped: its locks on rows must not hold up the next one."""
    own = begun(store)
    own.execute("create table held (n int)")
    own.execute("lock table held")
    pid = own.connection.info.backend_pid
    with postgres.connect(name_of(database)) as other:
        other.execute("select pg_terminate_backend(%s)", (store.connection.pid,))
        with closing(opened(database)):
            gone = "select count(*) from pg_stat_activity where pid = %s"
            until(lambda: other.execute(gone, (pid,)).fetchone() == (0,), "the transaction left open is ended")
    with pytest.raises((StorageError, psycopg.errors.AdminShutdown)):
        own.end(lambda: [row(2)])
    own.undo(StorageError("", ""))


def test_a_connection_that_ended_while_idle_is_replaced(store: PostgresStore, postgres: Postgres) -> None:
    own = begun(store)
    pid = own.connection.info.backend_pid
    own.end(lambda: [row(2)])
    with postgres.connect() as other:
        other.execute("select pg_terminate_backend(%s)", (pid,))
        until(
            lambda: other.execute("select count(*) from pg_stat_activity where pid = %s", (pid,)).fetchone() == (0,),
            "the idle connection has ended",
        )
    begun(store).end(lambda: [row(3)])
    assert counters(store) == [1, 2, 3]
