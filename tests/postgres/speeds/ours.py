"""What this service does: a client with its state in PostgreSQL or in SQLite, against a proxy and a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.stage import Stage
from pubsub.client import Client, Message, Transaction
from pubsub.client.outgoing import tables
from pubsub.config.settings import ClientSettings
from tests.faults.cluster import until
from tests.postgres.relays import ThreadedRelay

BATCH: Final = 500
FILL: Final = 1_000
CREATE: Final = "create table if not exists effects (topic text, body bytea)"

_names = count(1)


class Ours:
    """The service, for one store.

    Args:
        stage: the running cluster.
        url: of the database; None: a file.
        directory: of the clients' files.
    """

    def __init__(self, stage: Stage, url: str | None, directory: Path) -> None:
        self.name = "SQLite" if url is None else "PostgreSQL"
        self._stage, self._url, self._directory = stage, url, directory
        if url is not None:
            with psycopg.connect(url) as connection:
                tables.install(connection)
                connection.execute(CREATE)

    def client(self, name: str = "", **options: Any) -> Client:
        """Open a client with a state of its own."""
        settings = ClientSettings(**self._stage.where, directory=self._directory)
        options.setdefault("database", self._url)
        return Client(name or f"c{next(_names)}", settings=settings, **options)

    def put(self, body: bytes, secs: float) -> float:
        """Put one message after another, each up to its answer; return messages a second."""
        topic, done = f"t{next(_names)}", 0
        with self.client() as client:
            client.put(topic, body)
            begun = time.perf_counter()
            while time.perf_counter() < begun + secs:
                client.put(topic, body)
                done += 1
            return done / (time.perf_counter() - begun)

    def process(self, body: bytes, records: int) -> float:
        """Take messages one by one, each with an effect in the transaction of its position; messages a second."""
        insert = self._insert()

        def handle(message: Message, transaction: Transaction) -> None:
            transaction.execute(insert, (message.topic, bytes(message.body)))

        return self._taken(body, records, lambda client, topic: client.process(topic, handle, 10.0))

    def process_many(self, body: bytes, records: int) -> float:
        """Take messages in batches; messages a second."""
        insert = self._insert()

        def handle(messages: list[Message], transaction: Transaction) -> None:
            transaction.executemany(insert, [(message.topic, bytes(message.body)) for message in messages])

        return self._taken(body, records, lambda client, topic: client.process_many(topic, handle, 10.0, max=BATCH))

    def _insert(self) -> str:
        return "insert into effects values (?, ?)" if self._url is None else "insert into effects values (%s, %s)"

    def _taken(self, body: bytes, records: int, take: Callable[[Client, str], int]) -> float:
        topic = f"t{next(_names)}"
        with self.client() as client, self.client(database=None) as other:
            if self._url is None:
                with client.transaction() as transaction:
                    transaction.execute("create table effects (topic text, body blob)")
            client.subscribe(topic)
            for _ in range(records // FILL):
                other.put_many(topic, [body] * FILL, wait=False)
            other.flush(timeout=60)
            begun, taken = time.perf_counter(), 0
            while taken < records:
                taken += take(client, topic)
            return taken / (time.perf_counter() - begun)

    def relay(self, body: bytes, rows: int) -> float:
        """Send the rows of a filled table; rows a second until the server has stored all.

        The relay runs in this process, proxy and server in theirs.
        """
        assert self._url is not None
        with psycopg.connect(self._url) as connection:
            insert = "insert into pubsub.outgoing (topic, body) select 'relayed', %s from generate_series(1, %s)"
            connection.execute(insert, (body, rows))
        began = time.perf_counter()
        with ThreadedRelay(_Opening(self), self._url, self._directory, "relay") as relay:  # type: ignore[arg-type]
            relay.wait(active=True)
            working = relay.running._relay  # A snapshot would count the rows, which takes time of its own.
            assert working is not None
            until(lambda: working.taken >= rows and working.sent >= rows, "all are stored", 600)
            return rows / (time.perf_counter() - began)


class _Opening:
    """Opens the client of a relay, as an embedded cluster does."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours

    def client(self, name: str, *, database: str, directory: Path) -> Client:
        del directory
        return self._ours.client(name, database=database)
