"""The PostgreSQL of the tests itself: it starts, fails as asked, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from tests.faults.cluster import until
from tests.postgres.bouncer import PgBouncer
from tests.postgres.server import Postgres


def test_each_test_has_a_database_of_its_own(postgres: Postgres, database: str) -> None:
    other = postgres.create_database()
    with psycopg.connect(database) as first, postgres.connect(other) as second:
        first.execute("create table found (id int)")
        first.commit()
        assert second.execute("select to_regclass('found')").fetchone() == (None,)
    postgres.drop_database(other)


def test_a_template_is_filled_once(postgres: Postgres) -> None:
    fillings = []

    def fill(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        fillings.append(connection.execute("create table seed as select 1 as id"))

    names = [postgres.create_database(postgres.template(fill, "filled")) for _ in range(2)]
    for name in names:
        with postgres.connect(name) as connection:
            assert connection.execute("select id from seed").fetchone() == (1,)
        postgres.drop_database(name)
    assert len(fillings) == 1


def test_postgres_is_not_run_by_root(postgres: Postgres) -> None:
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_a_crash_keeps_commits_and_ends_connections(own_postgres: Postgres) -> None:
    connection = own_postgres.connect()
    connection.execute("create table kept as select 7 as id")
    own_postgres.restart("immediate")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    with own_postgres.connect() as again:
        assert again.execute("select id from kept").fetchone() == (7,)
    victim = own_postgres.connect()
    own_postgres.kill_backend(victim.info.backend_pid)
    until(own_postgres._is_ready, "PostgreSQL has recovered")
    place = own_postgres.place.path
    own_postgres.stop()
    assert not own_postgres.is_running
    own_postgres.__exit__()
    assert not place.exists()


def test_the_connections_of_an_application_are_ended(postgres: Postgres) -> None:
    named = postgres.connect(application_name="victim")
    assert postgres.terminate("victim", "postgres") == [named.info.backend_pid]
    with pytest.raises(psycopg.OperationalError):
        named.execute("select 1")


def test_a_replica_lags_and_is_promoted(own_postgres: Postgres) -> None:
    with own_postgres.replica() as replica, own_postgres.connect() as primary, replica.connect() as standby:
        primary.execute("create table seen as select 1 as id")
        until(lambda: standby.execute("select to_regclass('seen')").fetchone() != (None,), "the replica has the table")
        standby.execute("select pg_wal_replay_pause()")
        paused = "select pg_get_wal_replay_pause_state()"
        until(lambda: standby.execute(paused).fetchone() == ("paused",), "the replica does not replay")
        primary.execute("insert into seen values (2)")
        own_postgres.stop("immediate")
        replica.promote()
        # A promotion replays what has arrived, unless it is paused: then it ends the pause and replays it, too.
        assert standby.execute("select pg_is_in_recovery()").fetchone() == (False,)
        standby.execute("insert into seen values (3)")


def test_a_pooler_in_transaction_mode_shows_another_backend(pgbouncer: PgBouncer) -> None:
    with psycopg.connect(pgbouncer.url("postgres"), autocommit=True) as connection:
        row = connection.execute("select pg_backend_pid()").fetchone()
        assert row is not None
        assert row[0] != connection.info.backend_pid


def test_no_process_of_the_tests_is_the_servers_user(postgres: Postgres) -> None:
    assert os.getpid() != postgres.pid
