"""A look at another member: rows that it commits meanwhile are told, and rows of an ended life are never committed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from pubsub.client.core import changes as c
from pubsub.client.core.group_looks import LookedUp
from pubsub.client.storage.postgres.settling import settle_other
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.config.databases import DatabaseUrl
from tests.faults.cluster import until
from tests.postgres.stores import opened

STORE, LOG = "a" * 16, "b" * 16
DONE = "insert into pubsub.group_done values ('billing', 1, %s, -1, 3, 9)"
WAITING = "select count(*) from pg_locks where not granted"


def joined(database: str) -> PostgresStore:
    store = opened(database)
    store.commit([c.GroupJoined(1, "t", "g", STORE, 5, LOG, "{}", "{}")])
    return store


def look(database: str, identity: str) -> LookedUp | None:
    return settle_other(DatabaseUrl(database), "looker", identity, "billing", STORE, "t", "g", 5)


def test_a_commit_under_way_is_waited_for_and_its_rows_are_told(database: str) -> None:
    with closing(joined(database)) as store, psycopg.connect(database) as member, ThreadPoolExecutor(1) as pool:
        life, commits = member.execute("select life, commits from pubsub.state").fetchone() or ("", 0)
        member.execute(DONE, (LOG,))
        member.execute("select pubsub.step('billing', %s, %s, '')", (life, commits + 1))
        found = pool.submit(look, database, store.connection.place.identity)
        with psycopg.connect(database, autocommit=True) as other:
            until(lambda: other.execute(WAITING).fetchone() != (0,), "the look waits for the commit")
        member.commit()
        told = found.result(20.0)
    assert told is not None
    assert told.done == [(LOG, -1, 3, 9)]


def test_a_transaction_that_is_open_at_a_look_cannot_commit_any_more(database: str) -> None:
    with closing(joined(database)) as store, psycopg.connect(database) as member:
        life, commits = member.execute("select life, commits from pubsub.state").fetchone() or ("", 0)
        member.execute(DONE, (LOG,))
        told = look(database, store.connection.place.identity)
        assert told is not None
        assert told.done == []
        with pytest.raises(psycopg.ProgrammingError, match="another life has the client open"):
            member.execute("select pubsub.step('billing', %s, %s, '')", (life, commits + 1))


def test_a_look_in_another_database_finds_nobody_and_ends_nothing(database: str) -> None:
    with closing(joined(database)) as store:
        assert look(database, "another") is None
        store.commit([c.GroupDone(1, LOG, -1, 3, 9)])


def test_a_look_ends_the_connections_of_the_members_handlers(database: str) -> None:
    """A stopped process would keep the locks of its open transaction, and the next member would wait for them."""
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text)")
    with closing(joined(database)) as store:
        own = store.handler_database()
        assert own is not None
        own.begin()
        own.execute("lock table ledger")
        assert look(database, store.connection.place.identity) is not None
        with psycopg.connect(database) as other:
            other.execute("set lock_timeout = '10s'")
            other.execute("lock table ledger")
        with pytest.raises(psycopg.OperationalError):
            own.execute("select 1")
