"""The same work through Redis streams: a private redis-server with its append-only file, `appendfsync always`.

A record is an XADD, a batch of them a pipeline, a subscriber a consumer group that reads with XREADGROUP and
acknowledges with XACK; all through redis-py, as most Python programs use Redis. Neither the server nor the library is
needed for anything else.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pubsub.cli.bench.floors import percentile
from pubsub.cli.bench.worker import BATCH, END, Worker
from pubsub.errors import ConfigurationError

READ: Final = 1_000
"""Entries of one XREADGROUP: redis-py is fastest about there."""

FAN_OUT: Final = 10
READY_SECONDS: Final = 10.0


def check_redis() -> None:
    """See that there is a redis-server and redis-py.

    Raises:
        ConfigurationError: what is missing, and how to get it.
    """
    if shutil.which("redis-server") is None:
        raise ConfigurationError("--against redis: there is no redis-server on the PATH; install it, or leave this out")
    try:
        importlib.import_module("redis")
    except ImportError:
        raise ConfigurationError(
            "--against redis: redis-py is not installed: pip install 'pirate-pubsub[bench]'"
        ) from None


def connect(path: str) -> Any:
    """A connection of redis-py to the server behind a Unix socket."""
    return importlib.import_module("redis").Redis(unix_socket_path=path)


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
        pipeline.xadd(stream, {"b": body})
    pipeline.execute()


def _fill(server: Redis, stream: str, size: int, secs: float, records: int = BATCH) -> float:
    """Put at full speed; records a second."""
    redis, bodies = connect(server.address), [bytes(size)] * records
    begun, done = time.perf_counter(), 0
    while not done or time.perf_counter() < begun + secs:
        _add(redis, stream, bodies)
        done += records
    return done / (time.perf_counter() - begun)


def _put(records: int) -> Callable[[Redis, int, float], dict[str, float]]:
    return lambda server, size, secs: {"rate": _fill(server, server.stream(), size, secs, records)}


def consume(server: Redis, size: int, secs: float) -> dict[str, float]:
    """Read and acknowledge what is waiting."""
    redis, stream = connect(server.address), server.stream()
    redis.xgroup_create(stream, "g0", mkstream=True)
    _fill(server, stream, size, secs)
    begun = time.perf_counter()
    records = 0
    while (got := _take(redis, stream, "g0")[0]) > 0:
        records += got
    return {"rate": records / (time.perf_counter() - begun)}


def _take(redis: Any, stream: str, group: str, block_ms: int | None = None) -> tuple[int, bool]:
    """One XREADGROUP and its XACK: how many entries, and whether the last of them was END."""
    found = redis.xreadgroup(group, "c", {stream: ">"}, count=READ, block=block_ms)
    if not found:
        return 0, False
    entries = found[0][1]
    redis.xack(stream, group, *[name for name, _ in entries])
    return len(entries), entries[-1][1][b"b"] == END


def produce_worker(say: Callable[[Any], None], address: str, stream: str, size: int, secs: float) -> Any:
    """Put at full speed, then END."""
    redis, bodies = connect(address), [bytes(size)] * BATCH
    redis.ping()
    say("ready")
    begun, records = time.monotonic(), 0
    while time.monotonic() < begun + secs:
        _add(redis, stream, bodies)
        records += BATCH
    redis.xadd(stream, {"b": END})
    return {"begun": begun, "records": records}


def consume_worker(say: Callable[[Any], None], address: str, stream: str, groups: int = 1) -> Any:
    """Take all up to END, as one or several groups."""
    redis = connect(address)
    waiting = [f"g{n}" for n in range(groups)]
    for group in waiting:
        redis.xgroup_create(stream, group, mkstream=True)
    say("ready")
    begun, records = time.monotonic(), 0
    while waiting:
        for group in tuple(waiting):
            got, ended = _take(redis, stream, group, 1_000)
            records += got
            if ended:
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
    "put-1": _put(100),
    "put-100": _put(100),
    "put-1000": _put(1_000),
    "publisher": _put(1_000),
    "consume": consume,
    "iterate": consume,
    "end-to-end": end_to_end,
    "fan-out": fan_out,
}
"""By the name of our measure. Of one record a message, pipelined, there is no more than a pipeline of a hundred."""
