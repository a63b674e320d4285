"""A client in PostgreSQL has one life at a time, and a life ends where its database has lost commits."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import psycopg
import pytest

from pubsub import Embedded, embedded
from pubsub.client.errors import DatabaseOlder
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.errors import StorageError, StoreInUse
from tests.faults.cluster import until
from tests.postgres.behind_relay import network, store
from tests.postgres.proxy import Cutting
from tests.postgres.server import Postgres
from tests.postgres.stores import counters, name_of, opened, row

__all__ = ["network", "store"]


# One life at a time


def test_a_client_in_use_names_the_process_at_the_database(database: str) -> None:
    program = (
        "import sys\nfrom pubsub.client.storage.postgres.store import PostgresStore\n"
        "from pubsub.config.databases import DatabaseUrl\n"
        "store = PostgresStore('billing', DatabaseUrl(sys.argv[1]), seconds=5)\n"
        "print(store.connection.pid, flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pid = holder.stdout.readline().strip()
        with pytest.raises(StoreInUse, match=rf"PostgreSQL process {pid} from 127.0.0.1, since 20\d\d-") as raised:
            opened(database)
        assert raised.value.owner != "this process"
        holder.kill()
        holder.wait()
        until(lambda: _opens(database), "the lock of a killed process is free")


def _opens(database: str) -> bool:
    try:
        opened(database).close()
    except StoreInUse:
        return False
    return True


def test_a_killed_process_leaves_nothing_of_its_transaction(database: str) -> None:
    program = (
        "import sys\nfrom pubsub.client.core.changes import RowAdded\n"
        "from pubsub.client.storage.postgres.store import PostgresStore\n"
        "from pubsub.config.databases import DatabaseUrl\n"
        "store = PostgresStore('billing', DatabaseUrl(sys.argv[1]), seconds=5)\n"
        "store.commit([RowAdded('t', 1, 0, 1, 0, 7, b'kept')])\n"
        "store.begin(fsync=True)\nstore.execute('create table effects (n int)')\n"
        "store.apply([RowAdded('t', 2, 1, 1, 0, 7, b'lost')])\nprint('midway', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "midway\n"
        client.kill()
        client.wait()
    until(lambda: _opens(database), "the lock of a killed process is free")
    with closing(opened(database)) as store:
        assert counters(store) == [1]
        assert store.state("cuts") == 0
        assert store.query("select count(*) from pubsub_outbox") == [(1,)]
        store.begin(fsync=True)
        assert store.execute("select to_regclass('effects')").fetchone() == (None,)
        store.end()


def test_an_old_life_commits_nothing_after_another_one_began(database: str) -> None:
    """The lock is gone, because a handler released it; the token of the life refuses the commit."""
    old = opened(database)
    old.commit([row(1)])
    old.begin(fsync=True)
    old.apply([row(2)])
    old.execute("select pg_advisory_unlock_all()")
    with closing(opened(database)) as new:
        with pytest.raises(StoreInUse, match="opened the client after this connection was lost"):
            old.end()
        assert old._trouble is not None
        for call in (lambda: old.commit([row(3)]), old.sync, old.rollback):
            with pytest.raises(StoreInUse):
                call()
        assert counters(new) == [1]
        new.commit([row(2)])
    old.close()


def test_a_life_that_lost_its_lock_meanwhile_ends(store: PostgresStore, network: Cutting, database: str) -> None:
    network.cut()
    until(lambda: _opens(database), "the lock of the lost connection is free")
    for _ in range(2):
        with pytest.raises(StorageError) as raised:
            store.commit([row(2)])
    assert isinstance(raised.value, StoreInUse)
    assert store._trouble is not None


def test_another_process_that_has_the_lock_ends_the_life(store: PostgresStore, network: Cutting, database: str) -> None:
    network.cut()
    until(lambda: _opens(database), "the lock of the lost connection is free")
    with closing(opened(database)) as other:
        with pytest.raises(StorageError, match="the connection is lost"):
            store.sync()
        with pytest.raises(StoreInUse, match="this very process"):
            store.sync()
        other.commit([row(2)])


# A database that went back


def _go_back(database: str, commits: int) -> None:
    """Do what a restore of an earlier copy does to the client's rows, as far as the store can see it."""
    with psycopg.connect(database) as other:
        other.execute("update pubsub.state set commits = commits - %s", (commits,))
        other.execute("delete from pubsub.outbox where counter > 1")


def test_a_database_that_is_older_ends_the_life_and_counts_a_power_cut(store: PostgresStore, database: str) -> None:
    store.commit([row(2)])
    _go_back(database, 1)
    with pytest.raises(DatabaseOlder, match="the database is older than this process") as raised:
        store.commit([row(3)])
    assert raised.value.known == raised.value.found + 1
    assert store._trouble is not None
    with pytest.raises(DatabaseOlder):
        store.sync()
    store.rollback()
    assert counters(store) == [1]
    assert store.state("cuts") == 1
    store.commit([row(5)])
    assert counters(store) == [1, 5]


def test_this_process_finds_an_older_database_at_the_next_opening_too(database: str) -> None:
    with closing(opened(database)) as store:
        store.commit([row(1)])
        store.commit([row(2)])
    _go_back(database, 1)
    with closing(opened(database)) as again:
        assert again.state("cuts") == 1
    with closing(opened(database)) as again:
        assert again.state("cuts") == 1


def test_a_replica_that_took_over_behind_its_primary_is_found(own_postgres: Postgres) -> None:
    name = own_postgres.create_database()
    with Cutting(own_postgres) as network, closing(opened(network.url(name))) as store:
        store.commit([row(1)])
        with own_postgres.replica() as replica:
            with replica.connect(name) as standby:
                seen = "select count(*) from pubsub.outbox"
                until(lambda: standby.execute(seen).fetchone() == (1,), "the replica has the first row")
            replica.stop()
            store.commit([row(2)])
            own_postgres.stop("immediate")
            network.cut()
            replica.start()
            replica.promote()
            network.postgres = replica
            with pytest.raises(StorageError):
                store.sync()
            with pytest.raises(DatabaseOlder):
                store.sync()
            store.rollback()
            assert counters(store) == [1]
            assert store.state("cuts") == 1
            store.close()
            with closing(opened(network.url(name))) as again:
                assert again.state("cuts") == 1


def test_a_copy_of_a_database_counts_a_power_cut(postgres: Postgres, database: str) -> None:
    opened(database).close()
    copy = postgres.create_database(name_of(database))
    try:
        with closing(opened(postgres.url(copy))) as store:
            assert store.state("cuts") == 1
    finally:
        postgres.drop_database(copy)


def end_the_life_of_a_client(cluster: Embedded, database: str) -> None:
    with cluster.client("billing", database=database) as client:
        client._session.core.check_life()
        with psycopg.connect(database) as other:
            other.execute("update pubsub.state set life = 'another'")
        with pytest.raises(StorageError):
            client._session.core.check_life()


def test_a_client_asks_its_database_before_an_answer_shows_a_copy(database: str) -> None:
    with embedded() as cluster, pytest.raises(StoreInUse):  # Its close raises it, too.
        end_the_life_of_a_client(cluster, database)
