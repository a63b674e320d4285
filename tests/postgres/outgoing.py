"""A database with the tables of outgoing rows, for tests of what writes and takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pubsub.client.outgoing import tables
from tests.postgres.server import Postgres

Connection = psycopg.Connection[Any]


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Connection]:
    """A connection to a database with the tables, in autocommit."""
    name = postgres.create_database(postgres.template(tables.install, "with_outgoing"))
    with postgres.connect(name) as connection:
        yield connection
    postgres.drop_database(name)


def rows_of(connection: Connection) -> list[tuple[Any, ...]]:
    """Topic, key, headers and body of each row, oldest first."""
    return connection.execute("select topic, key, headers, body from pubsub.outgoing order by id").fetchall()
