"""The same work as users of Redis streams and of NATS JetStream do it beside their PostgreSQL.

A consumer has a plain inbox table: it inserts the ID of an entry, and makes the effect if the ID is new, in one
transaction; it acknowledges after the commit. A relay deletes rows of an outbox table and publishes them before its
commit, so a row may go out twice. Redis has `appendfsync always`. The NATS server fsyncs each write from 2.10 on.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import psycopg

from benchmarks.groups.peers import Nats
from benchmarks.redis import Redis, connect
from tests.postgres.speeds.ours import BATCH, CREATE, FILL

TABLES: Final = (
    CREATE,
    "create table if not exists inbox (id text primary key)",
    "create table if not exists outbox (id bigint generated always as identity primary key, body bytea)",
)
NEW: Final = "insert into inbox values (%s) on conflict do nothing"
EFFECT: Final = "insert into effects values (%s, %s)"
NEW_OF_MANY: Final = "insert into inbox select unnest(%s::text[]) on conflict do nothing returning id"
NEXT: Final = """
delete from outbox where id in (select id from outbox order by id limit 1000 for update skip locked) returning id, body
"""
_names = count(1)


def prepare(url: str) -> None:
    """Make the tables."""
    with psycopg.connect(url) as connection:
        for statement in TABLES:
            connection.execute(statement)


def fill_outbox(url: str, body: bytes, rows: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("insert into outbox (body) select %s from generate_series(1, %s)", (body, rows))


class WithRedis:
    """Redis streams beside PostgreSQL, by redis-py with hiredis and psycopg."""

    name = "Redis"

    def __init__(self, server: Redis, url: str) -> None:
        self._redis, self._url = connect(server.address), url
        prepare(url)

    def put(self, body: bytes, secs: float) -> float:
        stream, done = f"s{next(_names)}", 0
        begun = time.perf_counter()
        while time.perf_counter() < begun + secs:
            self._redis.xadd(stream, {"b": body})
            done += 1
        return done / (time.perf_counter() - begun)

    def _filled(self, body: bytes, records: int) -> str:
        stream = f"s{next(_names)}"
        self._redis.xgroup_create(stream, "g", id="0", mkstream=True)
        for _ in range(records // FILL):
            self._add(stream, [body] * FILL)
        return stream

    def _add(self, stream: str, bodies: list[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.execute_command("XADD", stream, "*", "b", body)
        pipeline.execute()

    def _read(self, stream: str) -> list[tuple[str, bytes]]:
        found = self._redis.execute_command(
            "XREADGROUP", "GROUP", "g", "c", "COUNT", BATCH, "BLOCK", 10_000, "STREAMS", stream, ">"
        )
        return [(f"{stream} {entry[0].decode()}", entry[1][1]) for entry in found[0][1]]

    def process(self, body: bytes, records: int) -> float:
        stream, taken = self._filled(body, records), 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            begun = time.perf_counter()
            while taken < records:
                for known, text in self._read(stream):
                    with connection.transaction():
                        if connection.execute(NEW, (known,)).rowcount:
                            connection.execute(EFFECT, (stream, text))
                    self._redis.xack(stream, "g", known.split()[1])
                    taken += 1
            return taken / (time.perf_counter() - begun)

    def process_many(self, body: bytes, records: int) -> float:
        stream, taken = self._filled(body, records), 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            begun = time.perf_counter()
            while taken < records:
                entries = self._read(stream)
                with connection.transaction(), connection.cursor() as cursor:
                    new = {row[0] for row in cursor.execute(NEW_OF_MANY, ([known for known, _ in entries],))}
                    cursor.executemany(EFFECT, [(stream, text) for known, text in entries if known in new])
                self._redis.xack(stream, "g", *[known.split()[1] for known, _ in entries])
                taken += len(entries)
            return taken / (time.perf_counter() - begun)

    def relay(self, body: bytes, rows: int) -> float:
        fill_outbox(self._url, body, rows)
        stream, sent = f"s{next(_names)}", 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            begun = time.perf_counter()
            while sent < rows:
                with connection.transaction(), connection.cursor(binary=True) as cursor:
                    found = sorted(cursor.execute(NEXT).fetchall())
                    self._add(stream, [text for _, text in found])
                sent += len(found)
            return sent / (time.perf_counter() - begun)


class WithNats:
    """NATS JetStream beside PostgreSQL, by nats-py and psycopg's asynchronous connection."""

    name = "NATS"

    def __init__(self, server: Nats, url: str) -> None:
        self._server, self._url = server, url
        self.version, self.synced = server.version, server.synced
        prepare(url)

    def _run(self, work: Callable[[Any, Any, str], Awaitable[float]]) -> float:
        """Run with a connection to NATS, one to PostgreSQL, and a new stream."""

        async def run() -> float:
            client = await importlib.import_module("nats").connect(self._server.url)
            connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            stream, name = client.jetstream(timeout=60), f"s{next(_names)}"
            try:
                await stream.add_stream(name=name, subjects=[name])
                return await work(stream, connection, name)
            finally:
                await connection.close()
                await client.close()

        return asyncio.run(run())

    def put(self, body: bytes, secs: float) -> float:
        async def work(stream: Any, _: Any, name: str) -> float:
            begun, done = time.perf_counter(), 0
            while time.perf_counter() < begun + secs:
                await stream.publish(name, body)
                done += 1
            return done / (time.perf_counter() - begun)

        return self._run(work)

    async def _consumer(self, stream: Any, name: str, body: bytes, records: int) -> Any:
        for _ in range(records // FILL):
            await asyncio.gather(*(stream.publish(name, body) for _ in range(FILL)))
        config = importlib.import_module("nats.js.api").ConsumerConfig(
            durable_name="g", ack_policy="explicit", ack_wait=60, max_ack_pending=100_000
        )
        await stream.add_consumer(name, config)
        return await stream.pull_subscribe_bind(consumer="g", stream=name)

    def process(self, body: bytes, records: int) -> float:
        async def work(stream: Any, connection: Any, name: str) -> float:
            consumer, taken = await self._consumer(stream, name, body, records), 0
            begun = time.perf_counter()
            while taken < records:
                for message in await consumer.fetch(BATCH, timeout=10):
                    known = f"{name} {message.metadata.sequence.stream}"
                    async with connection.transaction():
                        if (await connection.execute(NEW, (known,))).rowcount:
                            await connection.execute(EFFECT, (name, message.data))
                    await message.ack()
                    taken += 1
            return taken / (time.perf_counter() - begun)

        return self._run(work)

    def process_many(self, body: bytes, records: int) -> float:
        async def work(stream: Any, connection: Any, name: str) -> float:
            consumer, taken = await self._consumer(stream, name, body, records), 0
            begun = time.perf_counter()
            while taken < records:
                batch = await consumer.fetch(BATCH, timeout=10)
                entries = [(f"{name} {message.metadata.sequence.stream}", message.data) for message in batch]
                async with connection.transaction(), connection.cursor() as cursor:
                    await cursor.execute(NEW_OF_MANY, ([known for known, _ in entries],))
                    new = {row[0] for row in await cursor.fetchall()}
                    await cursor.executemany(EFFECT, [(name, text) for known, text in entries if known in new])
                for message in batch:
                    await message.ack()
                taken += len(batch)
            return taken / (time.perf_counter() - begun)

        return self._run(work)

    def relay(self, body: bytes, rows: int) -> float:
        fill_outbox(self._url, body, rows)

        async def work(stream: Any, connection: Any, name: str) -> float:
            begun, sent = time.perf_counter(), 0
            while sent < rows:
                async with connection.transaction(), connection.cursor(binary=True) as cursor:
                    await cursor.execute(NEXT)
                    found = sorted(await cursor.fetchall())
                    await asyncio.gather(*(stream.publish(name, text) for _, text in found))
                sent += len(found)
            return sent / (time.perf_counter() - begun)

        return self._run(work)
