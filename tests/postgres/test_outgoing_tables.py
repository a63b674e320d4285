"""The tables of outgoing rows: what a program of any language may insert, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pubsub.client.outgoing import tables
from pubsub.client.outgoing.packing import decoded_headers
from pubsub.errors import ConfigurationError, StorageError
from pubsub.protocol import encode_headers
from tests.postgres.outgoing import Connection, shop
from tests.postgres.server import Postgres

__all__ = ["shop"]


def insert(connection: Connection, **columns: Any) -> None:
    columns = {"topic": "orders", "body": b"x"} | columns
    names = ", ".join(columns)
    places = ", ".join(f"%({name})s" for name in columns)
    connection.execute(f"insert into pubsub.outgoing ({names}) values ({places})", columns)


ALLOWED: list[dict[str, Any]] = [
    {"topic": "a" * 80},
    {"topic": "orders/eu.1_$"},
    {"body": b""},
    {"key": b"\0\xff", "headers": Jsonb({"trace": "é", "raw": {"hex": "00ff"}})},
    {"headers": Jsonb({})},
    {"headers": Jsonb({f"h{n}": "v" for n in range(16)})},
    {"headers": Jsonb({"h": "v" * (8192 - 4)})},
    {"headers": Jsonb({f"h{n}": "v" for n in range(15)}), "ttl": "10 minutes"},
    {"deliver_at": "2020-01-01"},
    {"ttl": "0.001 seconds"},
    {"body": b"b" * 16_760_832},
]

TOPIC = "topic has 1 to 80 printable ASCII characters without space"
RESERVED = "topic has no * > # and does not begin with _ or $"
HEADERS = "headers, with ttl, are up to 16 texts or {hex: digits}, 8 KiB"
LATE = "deliver_at is at most 90 days ahead"
TTL = "ttl is between 1 millisecond and 3650 days"
LARGE = "body and key have at most 16,760,832 bytes together"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": ""}, TOPIC),
    ({"topic": "a" * 81}, TOPIC),
    ({"topic": "two words"}, TOPIC),
    ({"topic": "line\n"}, TOPIC),
    ({"topic": "é"}, TOPIC),
    ({"topic": "orders.*"}, RESERVED),
    ({"topic": "$dead.alice"}, RESERVED),
    ({"topic": "_x"}, RESERVED),
    ({"headers": Jsonb([])}, HEADERS),
    ({"headers": Jsonb("text")}, HEADERS),
    ({"headers": Jsonb({"n": 1})}, HEADERS),
    ({"headers": Jsonb({"n": None})}, HEADERS),
    ({"headers": Jsonb({"n": {"hex": "0"}})}, HEADERS),
    ({"headers": Jsonb({"n": {"hex": "00FF"}})}, HEADERS),
    ({"headers": Jsonb({"n": {"hex": 1}})}, HEADERS),
    ({"headers": Jsonb({"n": {}})}, HEADERS),
    ({"headers": Jsonb({"n": {"hex": "00", "more": "1"}})}, HEADERS),
    ({"headers": Jsonb({"a=b": "c"})}, HEADERS),
    ({"headers": Jsonb({"": "c"})}, HEADERS),
    ({"headers": Jsonb({"a" * 65: "c"})}, HEADERS),
    ({"headers": Jsonb({f"h{n}": "v" for n in range(17)})}, HEADERS),
    ({"headers": Jsonb({f"h{n}": "v" for n in range(16)}), "ttl": "10 minutes"}, HEADERS),
    ({"headers": Jsonb({"$ttl": "5"}), "ttl": "10 minutes"}, HEADERS),
    ({"headers": Jsonb({"h": "v" * (8192 - 3)})}, HEADERS),
    ({"headers": Jsonb({"h": "é" * 4095})}, HEADERS),
    ({"deliver_at": "infinity"}, LATE),
    ({"deliver_at": "2999-01-01"}, LATE),
    ({"ttl": "0 seconds"}, TTL),
    ({"ttl": "11 years"}, TTL),
    ({"body": b"b" * 16_760_832, "key": b"k"}, LARGE),
]


def test_the_tables_accept_what_the_service_accepts(shop: Connection) -> None:
    for columns in ALLOWED:
        insert(shop, **columns)
    for (text,) in shop.execute("select headers::text from pubsub.outgoing where headers is not null"):
        encode_headers(decoded_headers(text))


def test_a_bad_row_is_refused_at_its_insertion_and_the_error_says_why(shop: Connection) -> None:
    for columns, constraint in REFUSED:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            insert(shop, **columns)
        assert refused.value.diag.constraint_name == constraint, columns
    for column in ("id", "topic", "body"):
        with pytest.raises(psycopg.errors.IntegrityError if column != "id" else psycopg.errors.GeneratedAlways):
            insert(shop, **{column: None})


def test_an_installation_that_is_repeated_changes_nothing(shop: Connection) -> None:
    insert(shop)
    tables.install(shop)
    tables.check(shop)
    assert shop.execute("select count(*) from pubsub.outgoing").fetchone() == (1,)


def test_writers_insert_and_do_nothing_else(postgres: Postgres, shop: Connection) -> None:
    postgres.create_role("shop-web")
    tables.install(shop, ["shop-web"])
    with psycopg.connect(postgres.url(shop.info.dbname, "shop-web"), autocommit=True) as web:
        insert(web, key=b"k", headers=Jsonb({"a": "b"}), ttl="1 minute", deliver_at="2020-01-01")
        for statement in (
            "select body from pubsub.outgoing",
            "delete from pubsub.outgoing",
            "update pubsub.outgoing set body = ''",
            "truncate pubsub.outgoing",
            "insert into pubsub.outgoing (topic, body, written_at) values ('a', '', now())",
            "select * from pubsub.refused",
            "select * from pubsub.relay",
            "create table pubsub.mine (id int)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                web.execute(statement)
        with pytest.raises(ConfigurationError, match=r"role shop-web lacks a right there .*pubsub relay --install"):
            tables.check(web)


def test_bodies_are_stored_outside_and_autovacuum_comes_early(shop: Connection) -> None:
    options = "select unnest(reloptions) from pg_class where oid = %s::regclass"
    found = {row[0] for row in shop.execute(options, ("pubsub.outgoing",))}
    assert {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=10000"} <= found
    storage = "select attstorage from pg_attribute where attrelid = 'pubsub.outgoing'::regclass and attname = 'body'"
    assert shop.execute(storage).fetchone() == ("e",)
    increment = (
        "select seqcache from pg_sequence where seqrelid = pg_get_serial_sequence('pubsub.outgoing', 'id')::regclass"
    )
    assert shop.execute(increment).fetchone() == (1,)


def test_a_database_without_the_tables_or_with_newer_ones_is_named(postgres: Postgres, shop: Connection) -> None:
    with postgres.connect("postgres") as other, pytest.raises(ConfigurationError) as missing:
        tables.check(other)
    assert str(missing.value) == (
        f"database postgres at 127.0.0.1:{postgres.port} has no pubsub.outgoing; "
        "run: pubsub relay --install --database URL, as a role that may create a schema there"
    )
    shop.execute("update pubsub.relay set format = 99")
    with pytest.raises(ConfigurationError, match="format 99 of a newer release; this one knows up to 1: upgrade"):
        tables.check(shop)


def test_a_role_that_may_not_install_and_a_writer_that_is_not_there_are_named(
    postgres: Postgres, shop: Connection
) -> None:
    postgres.create_role("visitor")
    name = postgres.create_database()
    with (
        psycopg.connect(postgres.url(name, "visitor"), autocommit=True) as visitor,
        pytest.raises(
            StorageError, match=r"the role may not make or use the schema pubsub \(permission denied for database"
        ),
    ):
        tables.install(visitor)
    postgres.drop_database(name)
    with pytest.raises(ConfigurationError, match='role "nobody-here" does not exist; create the role first'):
        tables.install(shop, ["nobody-here"])


def test_a_lost_connection_is_an_error_of_the_storage(postgres: Postgres, shop: Connection) -> None:
    with postgres.connect(shop.info.dbname, application_name="lost") as lost:
        postgres.terminate("lost", shop.info.dbname)
        with pytest.raises(StorageError, match="terminating connection"):
            tables.check(lost)
