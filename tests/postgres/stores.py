"""Open the store of one client in PostgreSQL, with rows that say which commits happened."""

from __future__ import annotations

from pubsub.client.core import changes as c
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.config.databases import DatabaseUrl


def row(counter: int, body: bytes = b"body") -> c.RowAdded:
    return c.RowAdded("t", counter, counter - 1, 1, 0, 7, body)


def counters(store: PostgresStore) -> list[int]:
    return [found[0] for found in store.rows()]


def name_of(database: str) -> str:
    return database.rpartition("/")[2]


def opened(url: str, seconds: float = 20.0) -> PostgresStore:
    return PostgresStore("billing", DatabaseUrl(url), seconds=seconds)
