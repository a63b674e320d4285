"""The measures. Each is a function from a running stage to figures; MEASURES lists them.

A measure runs in this process with Python's default settings, like an application.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pubsub.cli.bench import BATCH, END
from pubsub.cli.bench.floors import percentile
from pubsub.client import Client

Figures = dict[str, float]

CONSUME_BATCH: Final = 10_000
"""Records of a GET, unless a client prefetches fewer because of their bytes."""

RATE: Final = {"rate": "records/s"}
MICROSECONDS: Final = {"p50": "µs", "p99": "µs"}


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
        name: its name for `--only`.
        run: runs it on a stage, with a message size in bytes and a duration in seconds.
        units: unit of each figure.
        floor: the machine's limit, in the unit of the first figure, from a disk, a size and seconds.
    """

    name: str
    run: Callable[[Any, int, float], Figures]
    units: dict[str, str]
    floor: Callable[[Any, int, float], float] | None = None


def latencies(taken: list[float], *shares: float) -> Figures:
    """Return percentiles in microseconds of times in seconds."""
    return {f"p{share * 100:g}": percentile(taken, share) * 1e6 for share in shares}


def timed_puts(client: Client, topic: str, body: bytes, secs: float) -> list[float]:
    """Return the seconds of each put, one at a time."""
    client.put(topic, body)
    taken: list[float] = []
    end = time.perf_counter() + secs
    while not taken or time.perf_counter() < end:
        begun = time.perf_counter()
        client.put(topic, body)
        taken.append(time.perf_counter() - begun)
    return taken


def sync_put(stage: Any, size: int, secs: float) -> Figures:
    """Measure one put at a time, each waited for."""
    with stage.client("putter") as client:
        return latencies(timed_puts(client, stage.name("topic"), bytes(size), secs), 0.5, 0.99)


def puts_of(records: int) -> Callable[[Any, int, float], Figures]:
    """Return a measure of puts with this number of records each, without waiting between them."""

    def put(stage: Any, size: int, secs: float) -> Figures:
        topic = stage.name("topic")
        bodies = [bytes(size)] * records
        with stage.client("putter") as client:
            client.put(topic, b"first")
            begun, done = time.perf_counter(), 0
            while not done or time.perf_counter() < begun + secs:
                for _ in range(max(1, 100 // records)):
                    client.put_many(topic, bodies, wait=False)
                    done += records
            client.flush()
            return {"rate": done / (time.perf_counter() - begun)}

    return put


def fill(stage: Any, topic: str, size: int, secs: float) -> int:
    """Put at full speed for `secs` seconds, then END; return the number of records."""
    bodies, done = [bytes(size)] * BATCH, 0
    with stage.client("filler") as filler:
        end = time.perf_counter() + secs
        while not done or time.perf_counter() < end:
            filler.put_many(topic, bodies, wait=False)
            done += BATCH
        filler.flush()
        filler.put(topic, END)
    return done + 1


def consume(stage: Any, size: int, secs: float) -> Figures:
    """Measure `get_many` of waiting messages, up to the last acknowledgement."""
    topic = stage.name("topic")
    with stage.client("taker") as client:
        client.subscribe(topic)
        records = fill(stage, topic, size, secs)
        begun, taken = time.perf_counter(), 0
        while taken < records:
            taken += len(client.get_many(topic, CONSUME_BATCH))
        client.close()
        return {"rate": records / (time.perf_counter() - begun)}


MEASURES: Final[Sequence[Measure]] = (
    Measure("sync-put", sync_put, MICROSECONDS, lambda floors, size, secs: floors.latency(size, secs)),
    Measure("put-1", puts_of(1), RATE),
    Measure("put-100", puts_of(100), RATE),
    Measure("put-1000", puts_of(1_000), RATE),
    Measure("consume", consume, RATE),
)
