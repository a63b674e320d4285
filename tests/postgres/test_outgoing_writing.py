"""A put by a connection of the caller's own: a row of the caller's transaction, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pubsub.client.outgoing import tables, writing
from pubsub.errors import CallerError, ConfigurationError, InvalidName, TooLarge
from tests.postgres.bouncer import PgBouncer
from tests.postgres.outgoing import Connection, rows_of, shop
from tests.postgres.server import Postgres

__all__ = ["shop"]


def write(connection: Any, topic: Any = "orders", bodies: Any = (b"x",), **facts: Any) -> None:
    writing.write_rows(connection, topic, bodies, **facts)


def test_a_row_appears_with_the_callers_commit_and_not_before(postgres: Postgres, shop: Connection) -> None:
    with psycopg.connect(postgres.url(shop.info.dbname)) as mine:
        write(mine)
        assert rows_of(shop) == []
        mine.rollback()
        write(mine, bodies=[b"a", b"b"], keys=[b"k", b""], headers=[{"h": b"\0"}, None])
        assert rows_of(shop) == []
        mine.commit()
    assert rows_of(shop) == [("orders", b"k", {"h": {"hex": "00"}}, b"a"), ("orders", b"", None, b"b")]


def test_many_rows_keep_their_order_and_all_or_none_are_written(postgres: Postgres, shop: Connection) -> None:
    bodies = [n.to_bytes(4) for n in range(3_000)]
    write(shop, bodies=bodies)
    assert [row[3] for row in rows_of(shop)] == bodies
    shop.execute("truncate pubsub.outgoing")
    large = [bytes([n]) * 6_000_000 for n in range(6)]  # Several statements.
    write(shop, bodies=large)
    assert [row[3][:1] for row in rows_of(shop)] == [bytes([n]) for n in range(6)]
    shop.execute("truncate pubsub.outgoing")
    shop.execute("alter table pubsub.outgoing add constraint few check (octet_length(body) < 6000000)")
    with pytest.raises(CallerError, match="refused the row: few"):
        write(shop, bodies=[*[b"x" * 5_999_999] * 4, b"x" * 6_000_000])
    assert rows_of(shop) == []


def test_delay_due_time_and_time_to_live_are_kept(shop: Connection) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    for facts in ({"delay": 60}, {"delay": 90 * 86400}, {"deliver_at": moment}, {"ttl": 1.5}, {"delay": 0}):
        write(shop, **facts)
    found = shop.execute("select deliver_at - now(), deliver_at, ttl from pubsub.outgoing order by id").fetchall()
    assert timedelta(seconds=55) < found[0][0] <= timedelta(seconds=61)
    assert timedelta(days=89) < found[1][0] <= timedelta(days=90)
    assert found[2][1] == moment
    assert found[3] == (None, None, timedelta(seconds=1.5))
    assert timedelta(seconds=-10) < found[4][0] <= timedelta(seconds=1)


@pytest.mark.parametrize(
    ("facts", "error", "text"),
    [
        ({"topic": "a b"}, InvalidName, "printable ASCII"),
        ({"topic": "$dead.x"}, InvalidName, "begins with"),
        ({"topic": "_x"}, InvalidName, "reserved"),
        ({"topic": 7}, InvalidName, "it is text"),
        ({"bodies": ["text"]}, CallerError, "body is bytes"),
        ({"bodies": b"one"}, CallerError, "put takes a single one"),
        ({"bodies": [b"x" * 16_760_833]}, TooLarge, "OUTGOING_BYTES_MAX"),
        ({"keys": [b"a", b"b"]}, CallerError, "2 for 1 messages"),
        ({"keys": ["a"]}, CallerError, "key is bytes"),
        ({"headers": [{"a b": b""}]}, InvalidName, "header name"),
        ({"headers": [{"a": "text"}]}, CallerError, "is bytes"),
        ({"headers": [{f"h{n}": b"" for n in range(16)}], "ttl": 1}, TooLarge, "MESSAGE_HEADERS_MAX"),
        ({"headers": [{"$ttl": b"1"}], "ttl": 1}, CallerError, "give only one"),
        ({"ttl": 0}, CallerError, "ttl is between"),
        ({"delay": -1}, CallerError, "delay is between"),
        ({"deliver_at": datetime(2020, 1, 1)}, CallerError, "needs a time zone"),
    ],
)
def test_arguments_are_checked_before_the_transaction_is_touched(
    postgres: Postgres, shop: Connection, facts: dict[str, Any], error: type[Exception], text: str
) -> None:
    with psycopg.connect(postgres.url(shop.info.dbname)) as mine:
        with pytest.raises(error, match=text):
            write(mine, **facts)
        assert mine.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_what_is_no_connection_of_psycopg_is_named(shop: Connection) -> None:
    assert writing.connection_of(SimpleNamespace(driver_connection=shop)) is shop
    with sqlite3.connect(":memory:") as other, pytest.raises(CallerError, match=r"psycopg 3, not sqlite3\.Connection"):
        writing.connection_of(other)
    with pytest.raises(CallerError, match=r"a psycopg\.Connection, which would block the event loop; Client takes it"):
        writing.async_connection_of(shop)
    with pytest.raises(CallerError, match=r"psycopg 3, not builtins.str"):
        writing.connection_of("postgresql://…")
    for module, hint in (
        ("psycopg2.extensions", "older driver"),
        ("sqlalchemy.orm", "give session.connection"),
        ("django.db", "give connection.connection"),
    ):
        with pytest.raises(CallerError, match=hint):
            writing.connection_of(type("connection", (), {"__module__": module})())
    with pytest.raises(CallerError, match="has no timeout"):
        writing.check_alone(None, 1.0)
    with pytest.raises(CallerError, match="has no transaction"):
        writing.check_alone(object(), None)


def test_a_database_without_the_table_and_a_role_without_the_right_are_named(
    postgres: Postgres, shop: Connection
) -> None:
    with (
        postgres.connect() as other,
        pytest.raises(ConfigurationError, match=r"database postgres at .* has no pubsub.outgoing"),
    ):
        write(other)
    postgres.create_role("stranger")
    stranger = psycopg.connect(postgres.url(shop.info.dbname, "stranger"), autocommit=True)
    with stranger, pytest.raises(ConfigurationError, match="--writers stranger"):
        write(stranger)
    with psycopg.connect(postgres.url(shop.info.dbname)) as broken:
        with pytest.raises(psycopg.errors.UndefinedColumn):
            broken.execute("select nothing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            write(broken)


def test_writers_may_use_a_pooler_that_shares_connections(
    postgres: Postgres, shop: Connection, pgbouncer: PgBouncer
) -> None:
    with (
        psycopg.connect(pgbouncer.url(shop.info.dbname)) as one,
        psycopg.connect(pgbouncer.url(shop.info.dbname)) as two,
    ):
        for n in range(20):  # More often than psycopg runs a statement before it prepares it.
            for writer in (one, two):
                write(writer, bodies=[b"%d" % n])
                writer.commit()
    assert len(rows_of(shop)) == 40


def test_an_asynchronous_connection_writes_the_same(postgres: Postgres, shop: Connection) -> None:
    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(postgres.url(shop.info.dbname)) as mine:
            assert writing.async_connection_of(mine) is mine
            with pytest.raises(CallerError, match="AsyncClient takes it"):
                writing.connection_of(mine)
            await writing.write_rows_async(mine, "orders", [b"lost"])
            await mine.rollback()
            await writing.write_rows_async(mine, "orders", [b"kept"])
        async with await psycopg.AsyncConnection.connect(postgres.url("postgres"), autocommit=True) as other:
            with pytest.raises(ConfigurationError):
                await writing.write_rows_async(other, "orders", [b""])

    asyncio.run(work())
    assert [row[3] for row in rows_of(shop)] == [b"kept"]


def test_the_statement_for_a_writer_needs_no_more_than_the_right_to_insert(
    postgres: Postgres, shop: Connection
) -> None:
    postgres.create_role("web")
    tables.install(shop, ["web"])
    with psycopg.connect(postgres.url(shop.info.dbname, "web"), autocommit=True) as web:
        write(web, headers=[{"a": b"b"}], ttl=5)
    assert rows_of(shop) == [("orders", b"", {"a": "b"}, b"x")]
