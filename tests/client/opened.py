"""Help tests with an open client at a real proxy and a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from pubsub.client import Client, Message, Transaction
from pubsub.errors import Unavailable

names = count(1)
"""A number behind a name makes it one that no other test has."""

PATIENCE = 60.0
"""Seconds until something counts as lost."""


def kill(client: Client) -> None:
    """Leave the client as SIGKILL would: it sends and writes nothing more."""
    session = client._session
    session._messenger.close()
    with session.lock:
        session.closed = True
        session.store.connection.close()


def eventually(done: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


def bodies(client: Client, topic: str, expected: int, timeout: float = PATIENCE) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < expected:
        batch = client.get_many(topic, timeout=timeout)
        assert batch, f"only {len(found)} of {expected} came"
        found += batch.bodies()
    return found


def nothing(client: Client, topic: str) -> bool:
    """Return True if no message comes; ask again if the machine was too busy for an answer of the server."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return client.get(topic, timeout=0.2) is None
        except Unavailable:
            assert time.monotonic() < deadline


def rows(client: Client, statement: str) -> list[tuple[Any, ...]]:
    with client.transaction() as transaction:
        return list(transaction.execute(statement))


def create(client: Client, *tables: str) -> None:
    with client.transaction() as transaction:
        for table in tables:
            transaction.execute(f"create table {table} (id, body)")


def record(message: Message, transaction: Transaction) -> None:
    transaction.execute("insert into taken values (?, ?)", (message.id, message.body))
