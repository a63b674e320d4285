"""Peers that share a stream's work among consumers: Redis streams and NATS JetStream; each where it runs here.

A consumer reads batches, has the same effect in its own SQLite file, one commit a record (`process`), or none (`take`),
and acknowledges a batch at once. That is at least once: a consumer that is killed between the commit and the
acknowledgement has its effect again. Redis has `appendfsync always`; NATS `sync_interval: always` from 2.10 on.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.groups.takers import BATCH, EFFECT, QUIET_SECONDS, TABLE, Count, lines
from benchmarks.redis import Redis, connect
from benchmarks.services import free_address
from pubsub.errors import ConfigurationError

READY_SECONDS: Final = 15.0
SYNCS_SINCE: Final = (2, 10)
"""The first NATS server that can fsync each write."""


def missing(name: str) -> str:
    """What this machine lacks of a peer; "" if it can run."""
    needs: dict[str, tuple[str, tuple[str, ...]]] = {
        "redis": ("redis-server", ("redis", "hiredis")),
        "nats": ("nats-server", ("nats",)),
        "rabbitmq": ("rabbitmq-server", ("pika",)),
    }
    server, modules = needs[name]
    if shutil.which(server) is None:
        return f"there is no {server} on the PATH"
    lacks = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"{lacks[0]} is not installed: pip install '.[bench]'" if lacks else ""


def _effects(directory: str) -> Callable[[str, bytes], None]:
    """An effect a record, as a consumer of a peer has it: one commit of its own database each."""
    Path(directory).mkdir(parents=True)
    db = sqlite3.connect(Path(directory) / "effects.db", isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=normal")  # As a client of ours: one fsync later covers many commits.
    db.execute(TABLE)

    def effect(topic: str, body: bytes) -> None:
        db.execute(EFFECT, (topic, body))

    return effect


# Redis


def fill_redis(server: Redis, stream: str, records: int, body: bytes) -> None:
    """Put records in pipelines."""
    redis = connect(server.address)
    for _ in range(records // BATCH):
        pipeline = redis.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.execute_command("XADD", stream, "*", "b", body)
        pipeline.execute()


def redis_member(say: Callable[[Any], None], address: str, directory: str) -> None:
    """A consumer of Redis groups: XREADGROUP of BATCH, with the XACK of the batch before in one round trip."""
    redis, effect, name = connect(address), _effects(directory), Path(directory).name
    say("up")
    for line in lines():
        stream, group, count = line["topic"], line["group"], Count()
        done: list[bytes] = []
        while True:
            pipeline = redis.pipeline(transaction=False)
            if done:
                pipeline.execute_command("XACK", stream, group, *done)
            wait = ("BLOCK", int(QUIET_SECONDS * 1000))
            pipeline.execute_command("XREADGROUP", "GROUP", group, name, "COUNT", BATCH, *wait, "STREAMS", stream, ">")
            found = pipeline.execute()[-1]
            if not found:
                break
            entries = found[0][1]
            if line["way"] == "process":
                for entry in entries:
                    effect(stream, entry[1][1])
            done = [entry[0] for entry in entries]
            count.add(len(done))
        say(count.took)


# NATS


class Nats:
    """A nats-server of our own; a context manager.

    Attributes:
        url: for clients.
        synced: whether it fsyncs each write.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        said = subprocess.run(["nats-server", "--version"], check=True, capture_output=True, encoding="utf-8")  # noqa: S607
        self.version = said.stdout.split("v")[-1].strip()
        self.synced = tuple(map(int, self.version.split(".")[:2])) >= SYNCS_SINCE
        self.url = free_address().replace("tcp:", "nats:")

    def __enter__(self) -> Nats:
        self.directory.mkdir(parents=True)
        port = int(self.url.rpartition(":")[2])
        always = ', sync_interval: "always"' if self.synced else ""
        config = f'host: "127.0.0.1", port: {port}, jetstream: {{store_dir: "{self.directory}/store"{always}}}\n'
        (self.directory / "config").write_text(config, encoding="utf-8")
        command = ["nats-server", "-c", str(self.directory / "config"), "-l", str(self.directory / "log")]
        self._process = subprocess.Popen(command)  # noqa: S603
        end = time.monotonic() + READY_SECONDS
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                self.__exit__()
                raise ConfigurationError(f"nats-server did not start; {self.directory / 'log'} said why")
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        log = self.directory / "log"
        return log.exists() and "Server is ready" in log.read_text(encoding="utf-8", errors="replace")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def fill_nats(server: Nats, topic: str, groups: list[str], records: int, body: bytes, wait_seconds: float = 30) -> None:
    """Make a stream with a pull consumer a group, and publish records, a batch under way at a time."""

    async def fill() -> None:
        client = await importlib.import_module("nats").connect(server.url)
        try:
            stream = client.jetstream(timeout=60)
            await stream.add_stream(name=topic, subjects=[topic])
            for group in groups:
                api = importlib.import_module("nats.js.api")
                config = api.ConsumerConfig(
                    durable_name=group, ack_policy="explicit", ack_wait=wait_seconds, max_ack_pending=100_000
                )
                await stream.add_consumer(topic, config)
            for _ in range(records // BATCH):
                await asyncio.gather(*(stream.publish(topic, body) for _ in range(BATCH)))
            for _ in range(records % BATCH):
                await stream.publish(topic, body)
        finally:
            await client.close()

    asyncio.run(fill())


def nats_member(say: Callable[[Any], None], url: str, directory: str) -> None:
    """A pull consumer: fetches of BATCH, each message acknowledged, which is one message each without an answer."""
    asyncio.run(_nats_member(say, url, directory))


async def _nats_member(say: Callable[[Any], None], url: str, directory: str) -> None:
    effect = _effects(directory)
    client = await importlib.import_module("nats").connect(url)
    stream = client.jetstream(timeout=60)
    say("up")
    loop = asyncio.get_running_loop()
    while text := await loop.run_in_executor(None, sys.stdin.readline):
        line, count = json.loads(text), Count()
        consumer = await stream.pull_subscribe_bind(consumer=line["group"], stream=line["topic"])
        while True:
            try:
                batch = await consumer.fetch(BATCH, timeout=QUIET_SECONDS)
            except TimeoutError:
                break
            for message in batch:
                if line["way"] == "process":
                    effect(line["topic"], message.data)
                await message.ack()
            await client.flush(60)
            count.add(len(batch))
        await consumer.unsubscribe()
        say(count.took)


@contextmanager
def running(name: str, directory: Path) -> Iterator[Redis | Nats]:
    """A peer's server of our own."""
    server: Redis | Nats = Redis(directory) if name == "redis" else Nats(directory)
    with server:
        yield server
