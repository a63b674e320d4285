"""Surroundings in which a client's promises would not hold are refused, each with one clear line without a password."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pubsub.client.storage.postgres.installing import FORMAT
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.config import ClientSettings
from pubsub.config.databases import DatabaseUrl
from pubsub.config.loading import load
from pubsub.errors import ConfigurationError, PubsubError, SettingRefused, StorageError, StoreFull, StoreNewer
from tests.postgres.bouncer import PgBouncer
from tests.postgres.server import Postgres

SECRET = "hunter2"


def opened(url: str) -> PostgresStore:
    return PostgresStore("billing", DatabaseUrl(url), seconds=5.0)


def refused(url: str) -> str:
    """Return the text of the error with which a store does not open."""
    with pytest.raises(PubsubError) as raised:
        opened(url).close()
    text = str(raised.value)
    assert isinstance(raised.value, StorageError | ConfigurationError)
    assert "\n" not in text
    return text


def test_a_pooler_is_refused(pgbouncer: PgBouncer, postgres: Postgres) -> None:
    name = postgres.create_database()
    assert "a pooler such as PgBouncer is between the client and PostgreSQL" in refused(pgbouncer.url(name))
    postgres.drop_database(name)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_database_that_can_lose_commits_is_refused(own_postgres: Postgres, setting: str) -> None:
    url = own_postgres.url("postgres")
    own_postgres.restart("fast", {setting: "off"})
    assert f"PostgreSQL runs with {setting}=off" in refused(url)


def test_a_replica_is_refused_with_and_without_libpq_s_help(own_postgres: Postgres) -> None:
    with own_postgres.replica() as replica:
        url = replica.url("postgres")
        for one in (url, f"{url}?target_session_attrs=any"):
            assert "the database takes no writes: it is a replica" in refused(one)


def test_a_database_made_read_only_is_refused(postgres: Postgres) -> None:
    name = postgres.create_database()
    with postgres.connect() as other:
        other.execute(f"alter database {name} set default_transaction_read_only = on")
    assert "the database takes no writes" in refused(postgres.url(name))
    postgres.drop_database(name)


def test_a_database_of_another_encoding_is_refused(postgres: Postgres) -> None:
    with postgres.connect() as other:
        other.execute("create database latin encoding 'LATIN1' template template0")
    assert "has the encoding LATIN1; UTF8 is needed" in refused(postgres.url("latin"))
    postgres.drop_database("latin")


def test_a_database_that_is_not_there(postgres: Postgres) -> None:
    assert "cannot be reached: connection failed" in refused("postgresql://postgres@127.0.0.1:1/shop")
    assert 'database "nowhere" does not exist' in refused(postgres.url("nowhere"))


def test_missing_rights_are_named_and_enough_once_they_are_granted(postgres: Postgres) -> None:
    postgres.create_role("app")
    name = postgres.create_database()
    url = postgres.url(name, "app")
    assert "the role may not make or use the schema pubsub (permission denied for database" in refused(url)
    opened(postgres.url(name)).close()
    assert "the role may not make or use the schema pubsub (permission denied for schema" in refused(url)
    with postgres.connect(name) as other:
        other.execute("grant usage on schema pubsub to app")
        assert "permission denied for table" in refused(url)
        other.execute("grant select, insert, update, delete on all tables in schema pubsub to app")
    with closing(PostgresStore("other", DatabaseUrl(url), seconds=5.0)) as store:
        store.sync()
        with postgres.connect(name) as other:
            other.execute("revoke all on pubsub.state from app")
        with pytest.raises(StorageError, match="the role lacks a right") as raised:
            store.sync()
        assert "\n" not in str(raised.value)
    postgres.drop_database(name)


def test_a_role_that_may_make_schemas_needs_nothing_else(postgres: Postgres) -> None:
    postgres.create_role("owner")
    name = postgres.create_database()
    with postgres.connect() as other:
        other.execute(f"grant create on database {name} to owner")
    with closing(opened(postgres.url(name, "owner"))) as store:
        store.sync()
    postgres.drop_database(name)


def test_a_schema_of_a_newer_release_is_refused(postgres: Postgres, database: str) -> None:
    opened(database).close()
    with postgres.connect(database.rpartition("/")[2]) as other:
        other.execute("update pubsub.format set number = number + 1")
        with pytest.raises(StoreNewer) as raised:
            opened(database)
        assert raised.value.found == FORMAT + 1
        other.execute("delete from pubsub.format")
        assert "the schema pubsub has no format number" in refused(database)


def test_several_clients_that_begin_at_once_make_one_schema(database: str) -> None:
    program = (
        "import sys\nfrom pubsub.client.storage.postgres.store import PostgresStore\n"
        "from pubsub.config.databases import DatabaseUrl\n"
        "sys.stdin.readline()\n"
        "PostgresStore(sys.argv[2], DatabaseUrl(sys.argv[1]), seconds=5).close()\n"
    )
    made = [
        subprocess.Popen([sys.executable, "-c", program, database, f"c{n}"], stdin=subprocess.PIPE) for n in range(3)
    ]
    for one in made:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert [one.wait() for one in made] == [0, 0, 0]
    for one in made:
        assert one.stdin is not None
        one.stdin.close()


def test_a_schema_without_a_table_is_reported(postgres: Postgres, database: str) -> None:
    with closing(opened(database)) as store, postgres.connect(database.rpartition("/")[2]) as other:
        other.execute("drop table pubsub.chains")
        with pytest.raises(StorageError, match="the schema pubsub is not complete"):
            list(store.chains())


def test_a_full_disk_is_reported_and_nothing_happens(own_postgres: Postgres) -> None:
    """PostgreSQL's own error of a full disk, raised by a trigger: a disk cannot be filled here."""
    from pubsub.client.core.changes import RowAdded

    with closing(opened(own_postgres.url("postgres"))) as store, own_postgres.connect() as other:
        other.execute(
            "create function full_disk() returns trigger language plpgsql as $$begin raise exception using"
            " errcode = '53100', message = 'could not extend file: No space left on device'; end$$"
        )
        other.execute(
            "create trigger full_disk before insert on pubsub.outbox for each row execute function full_disk()"
        )
        with pytest.raises(StoreFull, match="no space left on the disk of the database"):
            store.commit([RowAdded("t", 1, 0, 1, 0, 7, b"body")])
        other.execute("drop trigger full_disk on pubsub.outbox")
        assert not list(store.rows())
        store.commit([RowAdded("t", 1, 0, 1, 0, 7, b"body")])


# Passwords


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"postgresql://app:{SECRET}@db:5432/shop", "postgresql://app@db:5432/shop"),
        (f"postgres://app:{SECRET}@db/shop", "postgresql://app@db/shop"),
        (f"postgresql://app:{SECRET}%40@db/shop", "postgresql://app@db/shop"),
        (f"postgresql://db/shop?user=app&password={SECRET}", "postgresql://db/shop?user=app"),
        (f"postgresql://app@a:1,b:2/shop?sslmode=require&sslpassword={SECRET}",
         "postgresql://app@a:1,b:2/shop?sslmode=require"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///shop?host=/run/postgresql"),
    ],
)  # fmt: skip
def test_a_setting_shows_no_password(given: str, shown: str) -> None:
    settings = ClientSettings(database=given)
    url = settings.database
    assert isinstance(url, DatabaseUrl)
    assert (str(url), url.full) == (shown, given)
    assert pickle.loads(pickle.dumps(url)).full == given
    for text in (repr(settings), str(settings), f"{url}", repr(url), json.dumps([url])):
        assert SECRET not in text
    found = load(ClientSettings, environment={"PUBSUB_CLIENT_DATABASE": given}, file="/dev/null")
    assert isinstance(found.settings.database, DatabaseUrl)
    assert found.settings.database.full == given
    assert ClientSettings(database=url) == settings


@pytest.mark.parametrize(
    "given",
    [f"mysql://app:{SECRET}@db/shop", f"host=db password={SECRET}", f"postgresql://app:{SECRET} 1@db/shop",
     f"host=db password='{SECRET}'"],
)  # fmt: skip
def test_a_refused_setting_shows_no_password(given: str) -> None:
    with pytest.raises(SettingRefused, match="allowed: postgresql://USER@HOST:PORT/DATABASE") as raised:
        ClientSettings(database=given)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value)


def test_no_error_or_log_shows_the_password(
    postgres: Postgres, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = database.replace("postgres@", f"postgres:{SECRET}@")
    with closing(opened(url)) as store:
        assert SECRET not in store.path
        with pytest.raises(StorageError) as raised:
            opened(url)
        assert SECRET not in str(raised.value)
        with postgres.connect() as other:
            other.execute("select pg_terminate_backend(%s)", (store.connection.pid,))
        with pytest.raises(StorageError) as raised:
            store.sync()
        assert SECRET not in str(raised.value)
    wrong = f"postgresql://app:{SECRET}@127.0.0.1:1/shop"
    assert SECRET not in refused(wrong)
    assert SECRET not in refused(f"{database}?nonsense=1&password={SECRET}")
    assert SECRET not in caplog.text


def test_psycopg_is_asked_for_only_with_a_database(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['psycopg'] = None\n"
        "from pubsub.client import Client\n"
        "Client('a', directory=sys.argv[1]).close()\n"
        "try:\n    Client('a', database='postgresql://db/shop')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.startswith("ConfigurationError a state or outgoing rows in PostgreSQL need psycopg")
    assert "pip install '.[postgres]'" in ended.stdout
