"""The measures of `scripts/bench --http`: puts and polls through a gateway, beside a server that does nothing.

The floor of each is uvicorn with an empty handler, in the same seconds, asked the same by the same client.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from benchmarks.floors import Floors
from benchmarks.measures import Measure
from benchmarks.stage import Stage
from pubsub.cli.bench import BATCH
from pubsub.cli.bench.measures import Figures
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from benchmarks.http_load import Load

CONNECTIONS: Final = 64
LINES: Final = 10_000
LINES_CONNECTIONS: Final = 4
POLL: Final = 1_000
_REQUESTS: Final = {"rate": "requests/s"}
_RECORDS: Final = {"rate": "records/s"}


def measures() -> list[Measure]:
    """The measures.

    Raises:
        ConfigurationError: the extra is not installed.
    """
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise ConfigurationError("--http needs pip install '.[http]' in a clone")
    return [
        Measure("http-post", lambda *a: _put(_one, CONNECTIONS, 1, *a), _REQUESTS, _floor(_one, CONNECTIONS, 1)),
        Measure("http-keyed", lambda *a: _put(_keyed, CONNECTIONS, 1, *a), _REQUESTS, _floor(_keyed, CONNECTIONS, 1)),
        Measure("http-one", lambda *a: _put(_one, 1, 1, *a), _REQUESTS, _floor(_one, 1, 1)),
        Measure(
            "http-lines",
            lambda *a: _put(_lines, LINES_CONNECTIONS, LINES, *a),
            _RECORDS,
            _floor(_lines, LINES_CONNECTIONS, LINES),
        ),
        Measure("http-poll", poll, _RECORDS),
    ]


def _one(path: str, size: int) -> Load:
    from benchmarks.http_load import post

    return post(path, [bytes(size)])


def _keyed(path: str, size: int) -> Load:
    from benchmarks.http_load import post

    numbers = count(1)
    return post(path, [bytes(size)], key=lambda: f"bench-{next(numbers)}")


def _lines(path: str, size: int) -> Load:
    from benchmarks.http_load import post

    return post(path, [b"x" * size] * LINES, lines=True)


Make = Callable[[str, int], "Load"]


def _put(make: Make, connections: int, records: int, stage: Stage, size: int, secs: float) -> Figures:
    with gateway(stage) as port:
        rate = make(f"/topics/{stage.name('topic')}/messages", size).rate(port, connections, secs)
    return {"rate": rate * records}


def _floor(make: Make, connections: int, records: int) -> Callable[[Floors, int, float], float]:
    def floor(_: Floors, size: int, secs: float) -> float:
        with running("-m", "benchmarks.http_load") as said:
            return make("/", size).rate(int(said), connections, secs) * records

    return floor


def poll(stage: Stage, size: int, secs: float) -> Figures:
    """One subscriber polls a backlog and confirms each batch."""
    topic = stage.name("topic")
    with gateway(stage) as port, stage.client("putter") as client:
        base = f"/topics/{topic}/subscribers/s"
        _ask(port, "PUT", base)
        begun = time.perf_counter()
        while time.perf_counter() < begun + secs:
            client.put_many(topic, [b"x" * size] * BATCH)
        taken, begun = 0, time.perf_counter()
        while not taken or time.perf_counter() < begun + secs:
            batch = _ask(port, "GET", f"{base}/messages?max={POLL}&wait=1")
            if not batch:
                break
            taken += len(batch["messages"])
            _ask(port, "DELETE", batch["confirm"])
        return {"rate": taken / (time.perf_counter() - begun)}


def _ask(port: int, method: str, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise ConfigurationError(f"{method} {path}: {body.decode(errors='replace')}")
    return dict(json.loads(body)) if body else {}


@contextmanager
def gateway(stage: Stage) -> Iterator[int]:
    """A gateway of the stage's cluster; its port."""
    words = ["-m", "pubsub", "gateway", "start", "--bind", "127.0.0.1:0", "--proxy", stage.proxy]
    with running(*words, "--dir", str(stage.directory / stage.name("gateway"))) as said:
        yield int(said.rpartition(":")[2])


@contextmanager
def running(*words: str) -> Iterator[str]:
    """A process of ours, and the first line that it says; it is ended with the block."""
    process = subprocess.Popen(  # noqa: S603 - ours.
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if not said:
            raise ConfigurationError(f"{' '.join(words[:4])} has ended with {process.wait()}")
        yield said
    finally:
        process.kill()
        process.communicate()
