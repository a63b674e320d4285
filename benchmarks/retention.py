"""What kept messages cost: puts while many records go, and the memory and the start of many topics with settings.

A topic is filled and kept. Its setting then lets a part of the records go, and another part, until one is left. Phases
in which they go take turns with quiet phases. All the time PUBLISHERS put to other topics, each one message after
another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from benchmarks.stage import Stage, cpu_seconds, resident_bytes
from benchmarks.wire import Wire
from pubsub import console
from pubsub.cli.bench.floors import percentile
from pubsub.errors import Unavailable
from pubsub.protocol import Configure, Put, Report, encode_batch
from pubsub.protocol.topic_settings import encode_settings

RECORDS: Final = 10_000_000
TOPICS: Final = 10_000
BATCH: Final = 50
HOLD_SECONDS: Final = 13.0
"""The least `retention_hold_seconds` of a server with default clocks and liveness."""

PARTS: Final = 5
"""Parts in which the records go; before each is a quiet phase."""

PUBLISHERS: Final = 32
PUTS: Final = 2_000
"""Puts of a quiet phase, and the least puts of a phase in which records go."""

LOOK_PUTS: Final = 500
"""Puts between two questions how many records are left. Quiet phases have them, too."""

IDLE_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 600.0

UNITS: Final = {
    "put p50": "ms", "put p99": "ms", "put p99.9": "ms", "put p50 while records go": "ms",
    "put p99 while records go": "ms", "put p99.9 while records go": "ms", "ratio of p50": "", "ratio of p99": "",
    "ratio of p99.9": "", "puts": "", "puts while records go": "", "records that went": "",
    "seconds until they were gone": "s", "processor for 1,000 of them": "ms", "server": "MB",
    "server with topics": "MB", "server with settings": "MB", "server idle": "% CPU", "restart": "s",
}  # fmt: skip


class HoldingStage(Stage):
    """A cluster with a server that holds records for the least time."""

    def _start_server(self, options: list[str]) -> None:
        super()._start_server([*options, "--retention-hold-seconds", f"{HOLD_SECONDS:g}"])


class _Publisher:
    """Puts of one publisher to one topic, as messages."""

    def __init__(self, topic: str, name: str = "bench") -> None:
        self.topic, self._name, self._counter = topic, name, 1

    def put(self, count: int) -> Put:
        """Return the put of the next batch."""
        body, first = encode_batch([b"x"] * count), self._counter
        self._counter += count
        return Put(self._name, self.topic, first, "0" * 16, count, first - 1, crc32(body), body=body)


def measure(directory: Path, scale: float) -> dict[str, float]:
    """Return the figures of one run.

    Args:
        scale: 1.0 for the promised sizes; less makes all smaller.
    """
    with HoldingStage(directory / "retention") as stage:
        wire = Wire(stage.where)
        try:
            return _going(stage, wire, scale) | _many(stage, wire, max(1, int(TOPICS * scale)), min(1.0, scale))
        finally:
            wire.close()


def _configure(topic: str, version: int, base: int, **values: str) -> Configure:
    before = f"{base:016x}" if base else ""
    return Configure("bench", topic, f"{version:016x}", before, values=encode_settings(values))


class _Phase:
    """Puts of PUBLISHERS at once, and the records that are left meanwhile.

    Attributes:
        taken: seconds of each put.
        spent: processor time of the server, in seconds.
        left: records of the topic with the setting, at the last look.
    """

    def __init__(self, stage: Stage, wire: Wire, publishers: Sequence[_Publisher], left: int) -> None:
        self._server, self._wire, self._publishers = stage.processes["server"], wire, publishers
        self.taken: list[float] = []
        self.spent, self.left = 0.0, left

    def run(self, puts: int, until: int) -> None:
        """Put at least so often, and until at most `until` records are left."""
        used, deadline = cpu_seconds(self._server), time.monotonic() + PATIENCE_SECONDS
        flying: dict[int, tuple[_Publisher, float]] = {}
        look, taken = 0, 0
        for publisher in self._publishers:
            self._send(publisher, flying)
        while (taken < puts or self.left > until) and time.monotonic() < deadline:
            found = self._wire.receive(10.0)
            if found is None:
                raise Unavailable("put", "the bench", 10.0, "")
            token, status = found
            if token == look:
                look, self.left = 0, json.loads(bytes(status.body))["topics"]["kept"]["records"]
            elif token in flying:
                publisher, begun = flying.pop(token)
                self.taken.append(time.perf_counter() - begun)
                taken += 1
                if taken % LOOK_PUTS == 0 and not look:
                    look = self._wire.send(Report("bench", "s1", "kept"))
                self._send(publisher, flying)
        while flying and (found := self._wire.receive(10.0)):
            flying.pop(found[0], None)
        self.spent += cpu_seconds(self._server) - used

    def _send(self, publisher: _Publisher, flying: dict[int, tuple[_Publisher, float]]) -> None:
        message = publisher.put(1)
        begun = time.perf_counter()
        flying[self._wire.send(message)] = publisher, begun


def _going(stage: Stage, wire: Wire, scale: float) -> dict[str, float]:
    """Measure puts to topics while the records of another one stay, and while they go."""
    wire.ask(_configure("kept", 1, 0, keep="ever"))
    publishers = [_Publisher(f"other.{number}", f"bench{number}") for number in range(PUBLISHERS)]
    records, bodies = max(PARTS, int(RECORDS * scale) // BATCH) * BATCH, [b"x"] * BATCH
    with stage.client("filler") as filler:
        for _ in range(records // BATCH):
            filler.put_many("kept", bodies, wait=False)
        filler.flush()
    for publisher in publishers:
        wire.ask(publisher.put(1))
    time.sleep(HOLD_SECONDS + 1)
    puts = max(100, int(PUTS * min(1.0, scale * 10)))
    quiet, busy = (_Phase(stage, wire, publishers, records) for _ in range(2))
    seconds = 0.0
    for part in range(1, PARTS + 1):
        quiet.run(puts, records)
        keep = max(1, records - records * part // PARTS)
        wire.ask(_configure("kept", part + 1, part, keep=f"{keep} records"))
        begun = time.monotonic()
        busy.run(puts, keep + BATCH)
        seconds += time.monotonic() - begun
    return _figures(quiet, busy, records - busy.left, seconds)


def _figures(quiet: _Phase, busy: _Phase, gone: int, seconds: float) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        one, other = (percentile(sorted(phase.taken), share) * 1e3 for phase in (quiet, busy))
        out |= {f"put {name}": one, f"put {name} while records go": other, f"ratio of {name}": other / one}
    usual = quiet.spent / len(quiet.taken) * len(busy.taken)
    return out | {
        "puts": len(quiet.taken), "puts while records go": len(busy.taken), "records that went": gone,
        "seconds until they were gone": seconds,
        "processor for 1,000 of them": max(0.0, busy.spent - usual) / max(1, gone) * 1e6,
    }  # fmt: skip


def _many(stage: Stage, wire: Wire, topics: int, scale: float) -> dict[str, float]:
    """Measure many topics that count records: memory, looks, restart."""
    server = stage.processes["server"]
    out = {"server": resident_bytes(server) / 1e6}
    publishers = [_Publisher(f"many.{number}") for number in range(topics)]
    wire.ask_all(publisher.put(1) for publisher in publishers)
    out["server with topics"] = resident_bytes(server) / 1e6
    wire.ask_all(_configure(one.topic, 1, 0, keep="1000 records") for one in publishers)
    out["server with settings"] = resident_bytes(server) / 1e6
    used, begun = cpu_seconds(server), time.monotonic()
    time.sleep(IDLE_SECONDS * scale)
    out["server idle"] = 100 * (cpu_seconds(server) - used) / (time.monotonic() - begun)
    stage.kill_server()
    begun = time.monotonic()
    stage.restart_server()
    wire.ask(publishers[0].put(1))
    out["restart"] = time.monotonic() - begun
    return out


def show(runs: Sequence[dict[str, float]], *, as_json: bool) -> None:
    """Print the figures of each run."""
    if as_json:
        console.print_json({"retention": list(runs), "units": dict(UNITS)})
        return
    table = console.table("figure", *(f"run {number}" for number in range(1, len(runs) + 1)), "")
    for name, unit in UNITS.items():
        table.add_row(name, *(f"{run[name]:,.2f}" for run in runs), unit)
    console.print_table(table)
