"""The same work through Redis streams: a private redis-server with its append-only file, `appendfsync always`.

A record is an XADD, a batch of them a pipeline, a subscriber a consumer group that reads with XREADGROUP and
acknowledges with XACK; all through redis-py with hiredis, which parses and packs in C, over a Unix socket. It is
driven as fast as its users can: commands go in pipelines of PIPELINE records, the acknowledgement of what came last
travels with the next READS reads in one round trip, and replies are taken as hiredis gives them, without redis-py's
dictionaries. Neither the server nor the libraries are needed for anything else.
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from benchmarks.concurrent import by_tasks, by_threads
from benchmarks.worker import Worker
from pubsub.cli.bench import END
from pubsub.cli.bench.floors import percentile
from pubsub.errors import ConfigurationError

PIPELINE: Final = 1_000
"""XADDs of one round trip. 100 and 5,000 are slower."""

READ: Final = 1_000
"""Entries of one XREADGROUP."""

READS: Final = 4
"""XREADGROUPs of one round trip, behind the XACK of the round before. 1 of 10,000 and 8 of 500 entries are slower."""

SETTINGS: Final = (
    "appendonly yes, appendfsync always, Unix socket,"
    f" a round trip has {PIPELINE:,} XADD, or {READS} XREADGROUP of {READ:,} and the XACK of those before"
)
"""How Redis is driven, for whoever reads the figures."""

FAN_OUT: Final = 10
READY_SECONDS: Final = 10.0


def check_redis() -> None:
    """See that there is a redis-server, redis-py and hiredis.

    Raises:
        ConfigurationError: what is missing, and how to get it.
    """
    if shutil.which("redis-server") is None:
        raise ConfigurationError("--against redis: there is no redis-server on the PATH; install it, or leave this out")
    try:
        importlib.import_module("redis")
        importlib.import_module("hiredis")  # Without it redis-py falls back to a parser in Python, without a word.
    except ImportError as error:
        raise ConfigurationError(
            f"--against redis: {error.name} is not installed: pip install '.[bench]' in a clone"
        ) from None


def versions() -> str:
    """What is driven, and by what."""
    said = subprocess.run(["redis-server", "--version"], check=True, capture_output=True, encoding="utf-8").stdout  # noqa: S607
    server = next((word[2:] for word in said.split() if word.startswith("v=")), "?")
    return f"server {server}, redis-py {version('redis')}, hiredis {version('hiredis')}"


def connect(path: str) -> Any:
    """A connection of redis-py to the server behind a Unix socket; entries of streams come as hiredis has them."""
    redis = importlib.import_module("redis").Redis(unix_socket_path=path, protocol=2)
    redis.set_response_callback("XREADGROUP", lambda reply, **_: reply)
    return redis


class Redis:
    """A redis-server of our own; a context manager.

    Args:
        directory: made, and removed at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = str(directory / "socket")
        self._numbers = count(1)

    def __enter__(self) -> Redis:
        self.directory.mkdir(parents=True)
        options = {
            "port": "0", "unixsocket": self.address, "dir": str(self.directory), "save": "", "appendonly": "yes",
            "appendfsync": "always", "auto-aof-rewrite-percentage": "0", "daemonize": "no", "logfile": "log",
        }  # fmt: skip
        command = ["redis-server"]
        for name, value in options.items():
            command += [f"--{name}", value]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
        end = time.monotonic() + READY_SECONDS
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                self.__exit__(None, None, None)
                raise ConfigurationError(f"redis-server did not start; {self.directory / 'log'} said why")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        try:
            return bool(connect(self.address).ping())
        except Exception:  # noqa: BLE001 - redis-py has its own errors, and is not imported here.
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def stream(self) -> str:
        """A name that was not used yet."""
        return f"stream{next(self._numbers)}"


def sync_put(server: Redis, size: int, secs: float) -> dict[str, float]:
    """One XADD at a time."""
    redis, stream, body = connect(server.address), server.stream(), bytes(size)
    taken: list[float] = []
    end = time.perf_counter() + secs
    while not taken or time.perf_counter() < end:
        begun = time.perf_counter()
        redis.xadd(stream, {"b": body})
        taken.append(time.perf_counter() - begun)
    return {"p50": percentile(taken, 0.5) * 1e6, "p99": percentile(taken, 0.99) * 1e6}


def _add(redis: Any, stream: str, bodies: list[bytes]) -> None:
    pipeline = redis.pipeline(transaction=False)
    for body in bodies:
        pipeline.execute_command("XADD", stream, "*", "b", body)
    pipeline.execute()


def _fill(server: Redis, stream: str, size: int, secs: float) -> float:
    """Put at full speed; records a second."""
    redis, bodies = connect(server.address), [bytes(size)] * PIPELINE
    begun, done = time.perf_counter(), 0
    while not done or time.perf_counter() < begun + secs:
        _add(redis, stream, bodies)
        done += PIPELINE
    return done / (time.perf_counter() - begun)


def put(server: Redis, size: int, secs: float) -> dict[str, float]:
    """XADD in pipelines."""
    return {"rate": _fill(server, server.stream(), size, secs)}


def consume(server: Redis, size: int, secs: float) -> dict[str, float]:
    """Read and acknowledge what is waiting."""
    stream = server.stream()
    group = Group(connect(server.address), stream, "g0")
    _fill(server, stream, size, secs)
    begun = time.perf_counter()
    records = 0
    while (got := group.take()) > 0:
        records += got
    return {"rate": records / (time.perf_counter() - begun)}


def concurrent_async(server: Redis, size: int, secs: float) -> dict[str, float]:
    """TASKS tasks await XADD of one client, which keeps a connection for each that is under way."""
    body = bytes(size)

    async def measure() -> float:
        redis, stream = importlib.import_module("redis.asyncio").Redis(unix_socket_path=server.address), server.stream()
        try:
            return await by_tasks(lambda: redis.xadd(stream, {"b": body}), secs)
        finally:
            await redis.aclose()

    return {"rate": asyncio.run(measure())}


def concurrent_threads(server: Redis, size: int, secs: float) -> dict[str, float]:
    """THREADS threads call XADD of one client, which keeps a connection for each."""
    redis, stream, body = connect(server.address), server.stream(), bytes(size)
    return {"rate": by_threads(lambda: redis.xadd(stream, {"b": body}), secs)}


class Group:
    """A consumer group of a stream, made here.

    Attributes:
        ended: whether the last entry that came was END.
    """

    def __init__(self, redis: Any, stream: str, name: str) -> None:
        self._redis, self._stream, self._name = redis, stream, name
        self._taken: list[bytes] = []
        self.ended = False
        redis.xgroup_create(stream, name, mkstream=True)

    def take(self, block_ms: int | None = None) -> int:
        """Acknowledge what came last and read what is there, in one round trip; how many entries.

        Args:
            block_ms: how long to wait for one, where there is none.
        """
        pipeline = self._redis.pipeline(transaction=False)
        if self._taken:
            pipeline.execute_command("XACK", self._stream, self._name, *self._taken)
        blocking = [] if block_ms is None else ["BLOCK", block_ms]
        for number in range(READS):
            wait = [] if number else blocking
            pipeline.execute_command(
                "XREADGROUP", "GROUP", self._name, "c", "COUNT", READ, *wait, "STREAMS", self._stream, ">"
            )
        self._taken = []
        for found in pipeline.execute()[-READS:]:
            if found:
                entries = found[0][1]
                self._taken += [entry[0] for entry in entries]
                self.ended = entries[-1][1][1] == END
        if self.ended:
            self._redis.xack(self._stream, self._name, *self._taken)
        return len(self._taken)


def produce_worker(say: Callable[[Any], None], address: str, stream: str, size: int, secs: float) -> Any:
    """Put at full speed, then END."""
    redis, bodies = connect(address), [bytes(size)] * PIPELINE
    redis.ping()
    say("ready")
    begun, records = time.monotonic(), 0
    while time.monotonic() < begun + secs:
        _add(redis, stream, bodies)
        records += PIPELINE
    redis.xadd(stream, {"b": END})
    return {"begun": begun, "records": records}


def consume_worker(say: Callable[[Any], None], address: str, stream: str, groups: int = 1) -> Any:
    """Take all up to END, as one or several groups."""
    redis = connect(address)
    waiting = [Group(redis, stream, f"g{n}") for n in range(groups)]
    say("ready")
    begun, records = time.monotonic(), 0
    while waiting:
        for group in tuple(waiting):
            records += group.take(1_000)
            if group.ended:
                waiting.remove(group)
    return {"begun": begun, "ended": time.monotonic(), "records": records}


def end_to_end(server: Redis, size: int, secs: float) -> dict[str, float]:
    """A producer and a consumer process at once."""
    stream = server.stream()
    with (
        Worker(f"{__name__}:consume_worker", server.address, stream) as consumer,
        Worker(f"{__name__}:produce_worker", server.address, stream, size, secs) as producer,
    ):
        for worker in (consumer, producer):
            worker.said()
        consumer.go()
        producer.go()
        put, taken = producer.said(), consumer.said()
        return {"rate": put["records"] / (taken["ended"] - put["begun"])}


def fan_out(server: Redis, size: int, secs: float) -> dict[str, float]:
    """FAN_OUT groups in one process take what is waiting for all of them."""
    stream = server.stream()
    with Worker(f"{__name__}:consume_worker", server.address, stream, FAN_OUT) as takers:
        takers.said()
        _fill(server, stream, size, secs / 4)
        connect(server.address).xadd(stream, {"b": END})
        takers.go()
        result = takers.said()
        return {"rate": result["records"] / (result["ended"] - result["begun"])}


RIVALS: Final[dict[str, Callable[[Redis, int, float], dict[str, float]]]] = {
    "sync-put": sync_put,
    "put-1": put,
    "put-100": put,
    "put-1000": put,
    "concurrent-async": concurrent_async,
    "concurrent-threads": concurrent_threads,
    "put-nowait": put,
    "publisher": put,
    "consume": consume,
    "iterate": consume,
    "end-to-end": end_to_end,
    "fan-out": fan_out,
}
"""By the name of our measure. Records that are put without waiting for each are a pipeline, however we batch ours."""
