"""What is measured. Each measure is a function from a running stage to figures; MEASURES says what they are.

Producers and consumers that are measured together are processes of their own; one that is measured alone is this very
process, with Python's own settings, as an application has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.cli.bench import concurrent, growth
from pubsub.cli.bench.floors import Floors, percentile
from pubsub.cli.bench.stage import Stage
from pubsub.cli.bench.worker import BATCH, END, Worker
from pubsub.client import Client

Figures = dict[str, float]

FAN_OUT: Final = 10
STEADY_RATE: Final = 200_000
DELIVERY_RATE: Final = 200
CONSUME_BATCH: Final = 10_000
"""Records of a GET, unless they have more bytes than a client prefetches."""


@dataclass(frozen=True)
class Measure:
    """One thing that is measured.

    Attributes:
        name: how `--only` calls it.
        run: does it, on a stage, with bodies of so many bytes, for so many seconds.
        units: of each figure.
        floor: what this machine can do of it at all, in the unit of the first figure.
        sized: measured with each size of body; else with the first.
        once: in the first repetition only, because it takes long.
        paired: of a server with a standby only.
    """

    name: str
    run: Callable[[Stage, int, float], Figures]
    units: dict[str, str]
    floor: Callable[[Floors, int, float], float] | None = None
    sized: bool = True
    once: bool = False
    paired: bool = False


def _latencies(taken: list[float], *shares: float) -> Figures:
    """Percentiles in microseconds of times in seconds."""
    return {f"p{share * 100:g}": percentile(taken, share) * 1e6 for share in shares}


def _timed_puts(client: Client, topic: str, body: bytes, secs: float) -> list[float]:
    client.put(topic, body)
    taken: list[float] = []
    end = time.perf_counter() + secs
    while not taken or time.perf_counter() < end:
        begun = time.perf_counter()
        client.put(topic, body)
        taken.append(time.perf_counter() - begun)
    return taken


def sync_put(stage: Stage, size: int, secs: float) -> Figures:
    """One put at a time, each waited for."""
    with stage.client("putter") as client:
        return _latencies(_timed_puts(client, stage.name("topic"), bytes(size), secs), 0.5, 0.99)


def put_under_load(stage: Stage, size: int, secs: float) -> Figures:
    """The same while another process puts STEADY_RATE records a second to another topic."""
    directory = str(stage.directory / stage.name("load"))
    with (
        stage.client("putter") as client,
        Worker("steady", stage.where, directory, stage.name("topic"), size, STEADY_RATE) as load,
    ):
        load.said()
        load.go()
        taken = _timed_puts(client, stage.name("topic"), bytes(size), secs)
        load.go()
        return {**_latencies(taken, 0.5, 0.99, 0.999), "load": load.said()["rate"]}


def _put(records: int) -> Callable[[Stage, int, float], Figures]:
    def put(stage: Stage, size: int, secs: float) -> Figures:
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


def publisher(stage: Stage, size: int, secs: float) -> Figures:
    """Messages given to `publisher()` one by one."""
    topic, body = stage.name("topic"), bytes(size)
    with stage.client("putter") as client:
        client.put(topic, b"first")
        begun, done = time.perf_counter(), 0
        with client.publisher(topic) as out:
            while not done or time.perf_counter() < begun + secs:
                for _ in range(BATCH):
                    out.put(body)
                done += BATCH
        return {"rate": done / (time.perf_counter() - begun)}


def _backlog(stage: Stage, topic: str, size: int, secs: float) -> int:
    """Put at full speed for a while; how many records."""
    bodies, done = [bytes(size)] * BATCH, 0
    with stage.client("filler") as filler:
        end = time.perf_counter() + secs
        while not done or time.perf_counter() < end:
            filler.put_many(topic, bodies, wait=False)
            done += BATCH
        filler.flush()
        filler.put(topic, END)
    return done + 1


def consume(stage: Stage, size: int, secs: float) -> Figures:
    """`get_many` of what is waiting, up to the last acknowledgement."""
    topic = stage.name("topic")
    with stage.client("taker") as client:
        client.subscribe(topic)
        records = _backlog(stage, topic, size, secs)
        begun, taken = time.perf_counter(), 0
        while taken < records:
            taken += len(client.get_many(topic, CONSUME_BATCH))
        client.close()
        return {"rate": records / (time.perf_counter() - begun)}


def iterate(stage: Stage, size: int, secs: float) -> Figures:
    """`messages` over what is waiting, one by one, up to the last acknowledgement."""
    topic = stage.name("topic")
    with stage.client("taker") as client:
        client.subscribe(topic)
        records = _backlog(stage, topic, size, secs)
        begun = time.perf_counter()
        for message in client.messages(topic):
            if message.body == END:
                break
        client.close()
        return {"rate": records / (time.perf_counter() - begun)}


def end_to_end(stage: Stage, size: int, secs: float) -> Figures:
    """A producer and a consumer process at once: first put to last durable acknowledgement."""
    topic = stage.name("topic")
    producer_at, consumer_at = (str(stage.directory / stage.name(word)) for word in ("producer", "consumer"))
    with (
        Worker("consume", stage.where, consumer_at, topic) as consumer,
        Worker("produce", stage.where, producer_at, topic, size, secs) as producer,
    ):
        for worker in (consumer, producer):
            worker.said()
        consumer.go()
        producer.go()
        put, taken = producer.said(), consumer.said()
        return {"rate": put["records"] / (taken["ended"] - put["begun"])}


def fan_out(stage: Stage, size: int, secs: float) -> Figures:
    """FAN_OUT subscribers in one process take what is waiting for all of them."""
    topic = stage.name("topic")
    directory = str(stage.directory / stage.name("takers"))
    with Worker("consume", stage.where, directory, topic, FAN_OUT) as takers:
        takers.said()
        _backlog(stage, topic, size, secs / 4)
        takers.go()
        result = takers.said()
        return {"rate": result["records"] / (result["ended"] - result["begun"])}


def delivery(stage: Stage, size: int, secs: float) -> Figures:
    """From before the put in one process to the message in another, which waits for it with a long poll."""
    topic = stage.name("topic")
    directory = str(stage.directory / stage.name("steady"))
    with (
        stage.client("taker") as client,
        Worker("steady", stage.where, directory, topic, max(8, size), DELIVERY_RATE, 1) as load,
    ):
        client.subscribe(topic)
        load.said()
        load.go()
        taken: list[float] = []
        end = time.monotonic() + secs
        while len(taken) < 2 or time.monotonic() < end:
            message = client.get(topic, 10.0)
            assert message is not None
            taken.append((time.monotonic_ns() - int.from_bytes(message.body[:8], "little")) / 1e9)
        load.go()
        load.said()
        return _latencies(taken[1:], 0.5, 0.99)


def wal(stage: Stage, size: int, secs: float) -> Figures:
    """The server's write-ahead log after puts at full speed."""
    _backlog(stage, stage.name("topic"), size, secs)
    return {"size": stage.wal_bytes / 1e6}


def _latency(floors: Floors, size: int, secs: float) -> float:
    return floors.latency(size, secs)


def _puts(records: int) -> Callable[[Floors, int, float], float]:
    return lambda floors, size, secs: floors.puts(size, records, secs)


def _gets(floors: Floors, size: int, secs: float) -> float:
    return floors.gets(size, min(CONSUME_BATCH, max(1, (2 << 20) // max(1, size))), secs)


_RATE: Final = {"rate": "records/s"}
_MICROSECONDS: Final = {"p50": "µs", "p99": "µs"}

MEASURES: Final[Sequence[Measure]] = (
    Measure("sync-put", sync_put, _MICROSECONDS, _latency),
    Measure("put-1", _put(1), _RATE, _puts(1)),
    Measure("put-100", _put(100), _RATE, _puts(100)),
    Measure("put-1000", _put(1_000), _RATE, _puts(1_000)),
    Measure("concurrent-async", concurrent.concurrent_async, _RATE, _puts(1)),
    Measure("concurrent-threads", concurrent.concurrent_threads, _RATE, _puts(1)),
    Measure("put-nowait", concurrent.put_nowait, _RATE, _puts(1)),
    Measure("publisher", publisher, _RATE, _puts(1_000)),
    Measure("consume", consume, _RATE, _gets),
    Measure("iterate", iterate, _RATE, _gets),
    Measure("end-to-end", end_to_end, _RATE, _puts(1_000)),
    Measure("fan-out", fan_out, {"rate": "deliveries/s"}, _gets),
    Measure("delivery", delivery, _MICROSECONDS, _latency),
    Measure("delivery-busy", concurrent.delivery_busy, {"p50": "µs", "over the put": "µs"}, _latency),
    Measure("put-under-load", put_under_load, {**_MICROSECONDS, "p99.9": "µs", "load": "records/s"}, _latency),
    Measure("wal", wal, {"size": "MB"}, sized=False),
    Measure("backlog", growth.backlog, growth.BACKLOG_UNITS, sized=False, once=True),
    Measure("topics", growth.topics, growth.TOPICS_UNITS, sized=False, once=True),
    Measure("stopped", growth.stopped, growth.STOPPED_UNITS, sized=False, once=True),
    Measure("large", growth.large, growth.LARGE_UNITS, sized=False, once=True),
)
