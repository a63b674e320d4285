"""What grows: the cost of a put and a get as backlog and topics grow, memory, restart, idle subscriptions.

How large it grows follows from the seconds that are given: with a second or more to everything that is promised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from benchmarks.stage import Stage, cpu_seconds, resident_bytes
from benchmarks.wire import Wire
from benchmarks.worker import Worker
from pubsub.cli.bench import BATCH
from pubsub.cli.bench.floors import percentile
from pubsub.protocol import Get, Put, Status, Subscribe, encode_batch

BACKLOGS: Final = (1_000, 10_000, 100_000, 1_000_000)
TOPICS: Final = (1, 10, 100, 1_000, 10_000)
SUBSCRIBERS: Final = 1_000
WAITING: Final = 1_000_000
WAIT_SECONDS: Final = 10.0
"""How long a client that nothing comes to lets its GET wait."""

SAMPLES: Final = 300
"""Puts and gets that a cost is the median of."""

BACKLOG_UNITS: Final = {f"{what} at {n:,}": "µs" for what in ("put", "get") for n in BACKLOGS}
TOPICS_UNITS: Final = {f"{what} at {n:,}": "µs" for what in ("put", "get") for n in TOPICS}
STOPPED_UNITS: Final = {
    **{f"{role} {when}": "MB" for role in ("server", "proxy", "producer") for when in ("early", "late")},
    "backlog": "records",
}
LARGE_UNITS: Final = {
    "server": "MB", "proxy": "MB", "restart": "s", "server idle": "% CPU", "proxy idle": "% CPU",
    "server waited on": "% CPU", "proxy waited on": "% CPU",
}  # fmt: skip


def _scale(secs: float) -> float:
    """By how much all is made smaller where less than a second is given."""
    return min(1.0, secs)


def _at_least(number: int, secs: float) -> int:
    return max(1, int(number * _scale(secs)))


class _Publisher:
    """Puts of one publisher to any topics, as messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counter = 1
        self._previous: dict[str, int] = {}

    def put(self, topic: str, bodies: list[bytes]) -> Put:
        body = encode_batch(bodies)
        counter, previous = self._counter, self._previous.get(topic, 0)
        self._counter += len(bodies)
        self._previous[topic] = self._counter - 1
        return Put(self._name, topic, counter, "0" * 16, len(bodies), previous, crc32(body), body=body)


class _Subscribers:
    """Subscriptions, as messages."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        """(subscriber, topic)"""

    def subscribe(self) -> Iterator[Subscribe]:
        return (Subscribe(who, topic, 1, 1, "", "") for who, topic in self.pairs)

    def gets(self, records: int, wait_seconds: float) -> Iterator[Get]:
        return (_get(who, topic, records, wait_seconds) for who, topic in self.pairs)


def _get(who: str, topic: str, records: int, wait_seconds: float, status: Status | None = None) -> Get:
    """The next GET of a subscriber, after what the last answer brought."""
    last = status.message if status is not None else None
    return Get(who, topic, last, 1, 1, None, records, 1 << 20, int(wait_seconds * 1000), "", "")


def _timed(wire: Wire, message: Put | Get) -> tuple[float, Status]:
    begun = time.perf_counter()
    status = wire.ask(message)
    return time.perf_counter() - begun, status


def _costs(
    wire: Wire, publisher: _Publisher, who: str, names: list[str], size: int, secs: float
) -> tuple[float, float]:
    """Microseconds of one put of one record and of one GET of one record, medians, spread over topics."""
    puts, gets = [], []
    last: dict[str, Status] = {}
    for index in range(_at_least(SAMPLES, secs)):
        topic = names[index * 7919 % len(names)]
        puts.append(_timed(wire, publisher.put(topic, [bytes(size)]))[0])
        taken, last[topic] = _timed(wire, _get(who, topic, 1, 1.0, last.get(topic)))
        gets.append(taken)
    return percentile(puts, 0.5) * 1e6, percentile(gets, 0.5) * 1e6


def backlog(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """One topic whose subscriber is behind by more and more; each get takes the oldest record."""
    topic, publisher, who = stage.name("topic"), _Publisher(stage.name("putter")), stage.name("taker")
    wire, out, waiting = Wire(stage.where), {}, 0
    try:
        wire.ask(Subscribe(who, topic, 1, 1, "", ""))
        for wanted in BACKLOGS:
            missing = _at_least(wanted, secs) - waiting
            full, rest = divmod(max(0, missing), BATCH)
            wire.ask_all(publisher.put(topic, [bytes(size)] * n) for n in [BATCH] * full + [rest] * (rest > 0))
            waiting += max(0, missing)
            put, get = _costs(wire, publisher, who, [topic], size, secs)
            # The first GET of the next round begins behind what is acknowledged here.
            out[f"put at {wanted:,}"], out[f"get at {wanted:,}"] = put, get
    finally:
        wire.close()
    return out


def topics(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """More and more topics, each with a subscriber."""
    publisher, who, prefix = _Publisher(stage.name("putter")), stage.name("taker"), stage.name("topic")
    wire, out = Wire(stage.where), {}
    names: list[str] = []
    try:
        for wanted in TOPICS:
            fresh = [f"{prefix}-{n}" for n in range(len(names), _at_least(wanted, secs))]
            wire.ask_all(Subscribe(who, topic, 1, 1, "", "") for topic in fresh)
            names += fresh
            put, get = _costs(wire, publisher, who, names, size, secs)
            out[f"put at {wanted:,}"], out[f"get at {wanted:,}"] = put, get
    finally:
        wire.close()
    return out


def stopped(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """A producer at full speed whose consumer has stopped: memory early and late, and how far it got."""
    topic, directory = stage.name("topic"), str(stage.directory / stage.name("producer"))
    wire = Wire(stage.where)
    try:
        wire.ask(Subscribe(stage.name("taker"), topic, 1, 1, "", ""))
    finally:
        wire.close()
    out: dict[str, float] = {}
    seconds = 4 * secs
    with Worker("produce", stage.where, directory, topic, size, seconds) as producer:
        producer.said()
        processes = {**stage.processes, "producer": producer.process.pid}
        producer.go()
        for when in ("early", "late"):
            time.sleep(seconds * 0.45)
            for role, process in processes.items():
                out[f"{role} {when}"] = resident_bytes(process) / 1e6
        out["backlog"] = producer.said()["records"]
    return out


def large(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """10,000 topics, 1,000,000 waiting messages, 10,000 subscriptions of 1,000 subscribers; memory, restart, idling."""
    topics, subscribers = _at_least(TOPICS[-1], secs), _at_least(SUBSCRIBERS, secs)
    prefix, who = stage.name("topic"), stage.name("taker")
    pairs = [(f"{who}-{n % subscribers}", f"{prefix}-{n}") for n in range(topics)]
    all_of, publisher = _Subscribers(pairs), _Publisher(stage.name("putter"))
    each = [bytes(size)] * (WAITING // TOPICS[-1])
    out: dict[str, float] = {}
    wire = Wire(stage.where)
    try:
        wire.ask_all(all_of.subscribe())
        out |= _used(stage, " idle", 2 * secs)
        out |= _held(stage, wire, all_of, WAIT_SECONDS * _scale(secs))
        wire.ask_all(publisher.put(topic, each) for _, topic in pairs)
        out |= {role: resident_bytes(process) / 1e6 for role, process in stage.processes.items()}
        stage.kill_server()
        begun = time.monotonic()
        stage.restart_server()
        wire.ask(publisher.put(pairs[0][1], each))
        out["restart"] = time.monotonic() - begun
        out["server"] = max(out["server"], resident_bytes(stage.processes["server"]) / 1e6)
    finally:
        wire.close()
    return out


def _used(stage: Stage, suffix: str, seconds: float) -> dict[str, float]:
    """Percent of a core that each process uses while nothing is done."""
    before = {role: cpu_seconds(process) for role, process in stage.processes.items()}
    begun = time.monotonic()
    time.sleep(seconds)
    taken = time.monotonic() - begun
    return {
        role + suffix: 100 * (cpu_seconds(process) - before[role]) / taken for role, process in stage.processes.items()
    }


def _held(stage: Stage, wire: Wire, subscribers: _Subscribers, seconds: float) -> dict[str, float]:
    """The same while every subscription has a GET waiting, for so long that each is renewed once in between."""
    gets = subscribers.gets(100, seconds)
    flying = {wire.send(get): pair for get, pair in zip(gets, subscribers.pairs, strict=True)}
    _drain(wire, seconds / 20)
    before = {role: cpu_seconds(process) for role, process in stage.processes.items()}
    begun = time.monotonic()
    while (left := begun + seconds - time.monotonic()) > 0:
        found = wire.receive(left)
        if found is not None and (pair := flying.pop(found[0], None)) is not None:
            flying[wire.send(_get(*pair, 100, seconds))] = pair
    taken = time.monotonic() - begun
    return {
        f"{role} waited on": 100 * (cpu_seconds(process) - before[role]) / taken
        for role, process in stage.processes.items()
    }


def _drain(wire: Wire, seconds: float) -> None:
    """Let a burst of requests pass before what follows is measured."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wire.receive(end - time.monotonic())
