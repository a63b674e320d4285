"""What is measured. Each measure is a function from a running stage to figures; MEASURES says what they are.

Producers and consumers that are measured together are processes of their own; one that is measured alone is this very
process, with Python's own settings, as an application has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import concurrent, growth
from benchmarks.floors import Floors
from benchmarks.stage import Stage
from benchmarks.worker import Worker
from pubsub.cli.bench import BATCH, END
from pubsub.cli.bench import measures as bench
from pubsub.cli.bench.measures import (
    CONSUME_BATCH,
    MICROSECONDS,
    RATE,
    Figures,
    consume,
    fill,
    latencies,
    puts_of,
    sync_put,
    timed_puts,
)

FAN_OUT: Final = 10
STEADY_RATE: Final = 200_000
DELIVERY_RATE: Final = 200


@dataclass(frozen=True)
class Measure(bench.Measure):
    """One thing that is measured; attributes besides those of `pubsub bench`.

    Attributes:
        sized: measured with each size of body; else with the first.
        once: in the first repetition only, because it takes long.
        paired: of a server with a standby only.
    """

    sized: bool = True
    once: bool = False
    paired: bool = False


def put_under_load(stage: Stage, size: int, secs: float) -> Figures:
    """The same while another process puts STEADY_RATE records a second to another topic."""
    directory = str(stage.directory / stage.name("load"))
    with (
        stage.client("putter") as client,
        Worker("steady", stage.where, directory, stage.name("topic"), size, STEADY_RATE) as load,
    ):
        load.said()
        load.go()
        taken = timed_puts(client, stage.name("topic"), bytes(size), secs)
        load.go()
        return {**latencies(taken, 0.5, 0.99, 0.999), "load": load.said()["rate"]}


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


def iterate(stage: Stage, size: int, secs: float) -> Figures:
    """`messages` over what is waiting, one by one, up to the last acknowledgement."""
    topic = stage.name("topic")
    with stage.client("taker") as client:
        client.subscribe(topic)
        records = fill(stage, topic, size, secs)
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
        fill(stage, topic, size, secs / 4)
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
        return latencies(taken[1:], 0.5, 0.99)


def wal(stage: Stage, size: int, secs: float) -> Figures:
    """The server's write-ahead log after puts at full speed."""
    fill(stage, stage.name("topic"), size, secs)
    return {"size": stage.wal_bytes / 1e6}


def _latency(floors: Floors, size: int, secs: float) -> float:
    return floors.latency(size, secs)


def _puts(records: int) -> Callable[[Floors, int, float], float]:
    return lambda floors, size, secs: floors.puts(size, records, secs)


def _gets(floors: Floors, size: int, secs: float) -> float:
    return floors.gets(size, min(CONSUME_BATCH, max(1, (2 << 20) // max(1, size))), secs)


MEASURES: Final[Sequence[Measure]] = (
    Measure("sync-put", sync_put, MICROSECONDS, _latency),
    Measure("put-1", puts_of(1), RATE, _puts(1)),
    Measure("put-100", puts_of(100), RATE, _puts(100)),
    Measure("put-1000", puts_of(1_000), RATE, _puts(1_000)),
    Measure("concurrent-async", concurrent.concurrent_async, RATE, _puts(1)),
    Measure("concurrent-threads", concurrent.concurrent_threads, RATE, _puts(1)),
    Measure("put-nowait", concurrent.put_nowait, RATE, _puts(1)),
    Measure("publisher", publisher, RATE, _puts(1_000)),
    Measure("consume", consume, RATE, _gets),
    Measure("iterate", iterate, RATE, _gets),
    Measure("end-to-end", end_to_end, RATE, _puts(1_000)),
    Measure("fan-out", fan_out, {"rate": "deliveries/s"}, _gets),
    Measure("delivery", delivery, MICROSECONDS, _latency),
    Measure("delivery-busy", concurrent.delivery_busy, {"p50": "µs", "over the put": "µs"}, _latency),
    Measure("put-under-load", put_under_load, {**MICROSECONDS, "p99.9": "µs", "load": "records/s"}, _latency),
    Measure("wal", wal, {"size": "MB"}, sized=False),
    Measure("backlog", growth.backlog, growth.BACKLOG_UNITS, sized=False, once=True),
    Measure("topics", growth.topics, growth.TOPICS_UNITS, sized=False, once=True),
    Measure("stopped", growth.stopped, growth.STOPPED_UNITS, sized=False, once=True),
    Measure("large", growth.large, growth.LARGE_UNITS, sized=False, once=True),
)
