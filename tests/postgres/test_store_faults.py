"""A client's store in PostgreSQL under faults: each commit has one of three outcomes, and the store knows which."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import psycopg
import pytest

from pubsub.client.core import changes as c
from pubsub.client.errors import CommitInDoubt
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.errors import HandlerMisused, StorageError
from tests.faults.cluster import until
from tests.postgres.behind_relay import network, store
from tests.postgres.proxy import COMMIT, Cutting
from tests.postgres.server import Postgres
from tests.postgres.stores import counters, name_of, opened, row

__all__ = ["network", "store"]

LOG = "a" * 16


# A connection that is lost in a commit


def test_a_commit_whose_answer_was_lost_has_happened(store: PostgresStore, network: Cutting) -> None:
    for counter in range(2, 6):
        network.cut_behind = COMMIT
        store.commit([row(counter), c.ChainMoved("t", counter, 0, LOG)])
        assert list(store.chains()) == [("t", counter, 0, LOG)]
    assert network.cuts == 4
    assert counters(store) == [1, 2, 3, 4, 5]
    assert store._trouble is None


def test_a_put_whose_answer_was_lost_has_happened(store: PostgresStore, network: Cutting) -> None:
    for counter in range(2, 12):  # From the sixth time on, the statement is a prepared one.
        network.cut_behind = b"cut here" if counter % 2 else None
        store.commit([row(counter, b"cut here")])
    assert network.cuts == 5
    assert counters(store) == list(range(1, 12))


def test_a_commit_that_did_not_arrive_has_not_happened(store: PostgresStore, network: Cutting) -> None:
    network.cut_before = COMMIT
    with pytest.raises(StorageError, match="the connection is lost; the next call connects again"):
        store.commit([row(2), row(3)])
    assert store.failed
    assert counters(store) == [1]
    store.sync()
    assert not store.failed
    store.commit([row(2), row(3)])
    assert counters(store) == [1, 2, 3]


def test_a_put_that_did_not_arrive_has_not_happened(store: PostgresStore, network: Cutting) -> None:
    network.cut_before = b"cut here"
    with pytest.raises(StorageError, match="the connection is lost"):
        store.commit([row(2, b"cut here")])
    assert counters(store) == [1]
    store.commit([row(2, b"cut here")])
    assert counters(store) == [1, 2]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_is_in_doubt_while_the_database_says_nothing(network: Cutting, database: str, happened: bool) -> None:
    with closing(opened(network.url(name_of(database)), seconds=0.3)) as store:
        store.commit([row(1)])
        setattr(network, "cut_behind" if happened else "cut_before", COMMIT)
        network.refuses = True
        with pytest.raises(CommitInDoubt, match="nothing that follows from it was sent"):
            store.commit([row(2), row(3)])
        assert store._trouble is not None
        for call in (lambda: store.commit([row(4)]), lambda: list(store.rows()), store.sync):
            with pytest.raises(CommitInDoubt):
                call()
        with pytest.raises(StorageError, match="cannot be reached"):
            store.rollback()
        network.refuses = False
        store.rollback()
        assert counters(store) == ([1, 2, 3] if happened else [1])
        store.commit([row(7)])


def test_a_connection_that_ends_within_commit_has_not_committed(
    store: PostgresStore, postgres: Postgres, database: str
) -> None:
    """A deferred trigger holds the transaction within COMMIT until its backend is ended."""
    with postgres.connect(name_of(database)) as other:
        other.execute("create table held (n int)")
        other.execute("create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(60); end'")
        other.execute(
            "create constraint trigger waits after insert on held deferrable initially deferred"
            " for each row execute function wait()"
        )
        backend = store.connection.pid
        waits = "select wait_event = 'PgSleep' from pg_stat_activity where pid = %s"

        def end() -> None:
            until(lambda: other.execute(waits, (backend,)).fetchone() == (True,), "the commit waits in its trigger")
            other.execute("select pg_terminate_backend(%s)", (backend,))

        ender = threading.Thread(target=end)
        ender.start()
        store.begin(fsync=True)
        store.execute("insert into held values (1)")
        store.apply([row(2)])
        with pytest.raises(StorageError, match="the connection is lost"):
            store.end()
        ender.join()
        assert store.rolled_back
        assert counters(store) == [1]
        assert other.execute("select count(*) from held").fetchone() == (0,)


# A connection that is lost elsewhere


def test_a_connection_that_ends_between_two_calls_is_made_again(store: PostgresStore, network: Cutting) -> None:
    network.cut()
    with pytest.raises(StorageError, match="the connection is lost"):
        store.commit([row(2)])
    store.commit([row(2)])
    network.cut()
    with pytest.raises(StorageError, match="the connection is lost"):
        list(store.rows())
    assert counters(store) == [1, 2]


def test_a_transaction_whose_connection_ends_is_rolled_back(store: PostgresStore, postgres: Postgres) -> None:
    store.begin(fsync=True)
    store.apply([row(2)])
    with postgres.connect() as other:
        other.execute("select pg_terminate_backend(%s)", (store.connection.pid,))
    with pytest.raises(psycopg.OperationalError) as raised:
        store.execute("select 1")
    assert store.kind_of(raised.value) is not None
    with pytest.raises(StorageError, match="the connection is lost"):
        store.undo(raised.value)
    assert counters(store) == [1]
    store.commit([row(2)])


def test_acknowledged_commits_survive_a_crash_of_the_database(own_postgres: Postgres) -> None:
    url = own_postgres.url(own_postgres.create_database())
    with closing(opened(url)) as store:
        for start in (1, 11, 21):
            for counter in range(start, start + 10):
                store.commit([row(counter)])
            own_postgres.restart("immediate")
            with pytest.raises(StorageError, match="the connection is lost"):
                store.sync()
            store.sync()
            assert counters(store) == list(range(1, start + 10))
        assert store.state("cuts") == 0


# Handlers


def test_a_transaction_that_a_statement_ended_is_misused(store: PostgresStore) -> None:
    for statements in (
        ["commit"],
        ["rollback"],
        ["commit", "begin"],
        ["commit and chain"],
        ["savepoint a", "rollback to a", "commit; begin"],
    ):
        store.begin(fsync=True)
        for statement in statements:
            store.execute(statement)
        with pytest.raises(HandlerMisused, match="a statement ended the transaction"):
            _finish(store)
        assert counters(store) == [1], statements
    store.begin(fsync=True)
    store.execute("savepoint a")
    store.execute("release a")
    _finish(store)
    assert counters(store) == [1, 2]


def _finish(store: PostgresStore) -> None:
    """Commit as a session does, with a row."""
    try:
        if not store.in_transaction:
            raise HandlerMisused("a statement ended the transaction")
        store.apply([row(2)])
    except BaseException as error:
        store.undo(error)
        raise
    store.end()


@pytest.mark.parametrize("method", ["commit", "rollback", "close"])
def test_the_connection_of_a_transaction_refuses_to_end_it(store: PostgresStore, method: str) -> None:
    store.begin(fsync=True)
    with pytest.raises(HandlerMisused, match=rf"connection\.{method}\(\)"):
        getattr(store.connection, method)()
    store.apply([row(2)])
    store.end()
    assert counters(store) == [1, 2]


def test_a_failed_statement_needs_a_savepoint(store: PostgresStore) -> None:
    store.begin(fsync=True)
    with pytest.raises(psycopg.errors.DivisionByZero):
        store.execute("select 1 / 0")
    with pytest.raises(HandlerMisused, match=r"with transaction\.connection\.transaction\(\)"):
        _finish(store)
    store.begin(fsync=True)
    with pytest.raises(psycopg.errors.DivisionByZero), store.connection.transaction():
        store.execute("select 1 / 0")
    _finish(store)
    assert counters(store) == [1, 2]


@pytest.mark.parametrize("local", ["local ", ""])
def test_a_handler_cannot_make_its_commit_less_durable(store: PostgresStore, database: str, local: str) -> None:
    with psycopg.connect(database) as other:
        other.execute("create table levels (level text)")
        other.execute(
            "create function note() returns trigger language plpgsql as"
            " $$begin insert into levels values (current_setting('synchronous_commit')); return null; end$$"
        )
        other.execute(
            "create constraint trigger notes after insert on pubsub.chains deferrable initially deferred"
            " for each row execute function note()"
        )
    store.begin(fsync=True)
    store.execute(f"set {local}synchronous_commit = off")
    store.apply([c.ChainMoved("t", 1, 0, LOG)])
    store.end()
    with psycopg.connect(database) as other:
        assert other.execute("select level from levels").fetchall() == [("on",)]


def test_a_role_with_weak_commits_gets_strong_ones(postgres: Postgres) -> None:
    postgres.create_role("hasty", "superuser login")
    with postgres.connect() as other:
        other.execute("alter role hasty set synchronous_commit = off")
        other.execute("alter role hasty set default_transaction_isolation = 'serializable'")
    name = postgres.create_database()
    try:
        with closing(opened(postgres.url(name, "hasty"))) as store:
            found: Any = store.execute("show synchronous_commit").fetchone()
            assert found == ("on",)
            store.commit([row(1), row(2)])
            store.commit([row(3)])
            assert counters(store) == [1, 2, 3]
            store.begin(fsync=True)
            assert store.execute("show transaction_isolation").fetchone() == ("serializable",)
            store.end()
    finally:
        postgres.drop_database(name)


def test_a_connection_that_ends_within_many_statements_is_made_again(store: PostgresStore) -> None:
    for rows in (1, 3, 3_000):
        store.begin(fsync=True)
        with pytest.raises(psycopg.OperationalError) as raised:
            store.executemany("select pg_terminate_backend(pg_backend_pid()), %s", [(n,) for n in range(rows)])
        with pytest.raises(StorageError, match="the connection is lost"):
            store.undo(raised.value)
        assert counters(store) == [1]
    store.commit([row(2)])


def test_a_connection_that_was_left_within_a_pipeline_is_made_again(store: PostgresStore) -> None:
    """psycopg leaves it so if it sees the error of an ended backend before the end of the connection."""
    store.connection.pgconn.enter_pipeline_mode()
    store.commit([row(2)])
    store.begin(fsync=True)
    store.connection.pgconn.enter_pipeline_mode()
    with pytest.raises(psycopg.OperationalError) as raised:
        store.execute("select 1")
    with pytest.raises(StorageError, match="the connection is lost"):
        store.undo(raised.value)
    store.commit([row(3)])
    assert counters(store) == [1, 2, 3]
