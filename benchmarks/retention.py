"""What kept messages cost: puts while many records go, and the memory and the start of many topics with settings.

A topic is filled and kept, and then told to keep one record. While it shrinks, another topic is put to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from benchmarks.stage import Stage, cpu_seconds, resident_bytes
from benchmarks.wire import Wire
from pubsub import console
from pubsub.cli.bench.floors import percentile
from pubsub.protocol import Configure, Put, Report, encode_batch
from pubsub.protocol.topic_settings import encode_settings

RECORDS: Final = 10_000_000
TOPICS: Final = 10_000
BATCH: Final = 1_000
HOLD_SECONDS: Final = 13.0
"""The least `retention_hold_seconds` of a server with default clocks and liveness."""

PUTS: Final = 5_000
IDLE_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 600.0

UNITS: Final = {
    "put p99.9": "ms", "put p99.9 while records go": "ms", "ratio": "", "puts while records go": "",
    "records that went": "", "seconds until they were gone": "s", "server": "MB", "server with topics": "MB",
    "server with settings": "MB", "server idle": "% CPU", "restart": "s",
}  # fmt: skip


class HoldingStage(Stage):
    """A cluster with a server that holds records for the least time."""

    def _start_server(self, options: list[str]) -> None:
        super()._start_server([*options, "--retention-hold-seconds", f"{HOLD_SECONDS:g}"])


class _Publisher:
    """Puts of one publisher to one topic, as messages."""

    def __init__(self, topic: str) -> None:
        self.topic, self._counter = topic, 1

    def put(self, count: int) -> Put:
        """Return the put of the next batch."""
        body, first = encode_batch([b"x"] * count), self._counter
        self._counter += count
        return Put("bench", self.topic, first, "0" * 16, count, first - 1, crc32(body), body=body)


def measure(directory: Path, scale: float) -> dict[str, float]:
    """Return the figures of one run.

    Args:
        scale: 1.0 for the promised sizes; less makes all smaller.
    """
    with HoldingStage(directory / "retention") as stage:
        wire = Wire(stage.where)
        try:
            return _going(wire, scale) | _many(stage, wire, max(1, int(TOPICS * scale)), min(1.0, scale))
        finally:
            wire.close()


def _configure(topic: str, version: int, base: int, **values: str) -> Configure:
    before = f"{base:016x}" if base else ""
    return Configure("bench", topic, f"{version:016x}", before, values=encode_settings(values))


def _going(wire: Wire, scale: float) -> dict[str, float]:
    """Measure puts to a topic before and while the records of another one go."""
    wire.ask(_configure("kept", 1, 0, keep="ever"))
    kept, other = _Publisher("kept"), _Publisher("other")
    batches = max(1, int(RECORDS * scale) // BATCH)
    wire.ask_all(kept.put(BATCH) for _ in range(batches))
    wire.ask(other.put(1))
    time.sleep(HOLD_SECONDS + 1)
    puts = max(20, int(PUTS * min(1.0, scale * 10)))
    before = _puts(wire, other, lambda taken: taken < puts)
    begun = time.monotonic()
    wire.ask(_configure("kept", 2, 1, keep="1 records"))
    during: list[float] = []
    left = batches * BATCH
    while left > BATCH and time.monotonic() < begun + PATIENCE_SECONDS:
        during += _puts(wire, other, lambda taken: taken < 50)
        left = json.loads(bytes(wire.ask(Report("bench", "s1", "kept")).body))["topics"]["kept"]["records"]
    quiet, busy = (percentile(sorted(found), 0.999) * 1e3 for found in (before, during))
    return {
        "put p99.9": quiet, "put p99.9 while records go": busy, "ratio": busy / quiet,
        "puts while records go": len(during), "records that went": batches * BATCH - left,
        "seconds until they were gone": time.monotonic() - begun,
    }  # fmt: skip


def _puts(wire: Wire, publisher: _Publisher, goes_on: Callable[[int], bool]) -> list[float]:
    found: list[float] = []
    while goes_on(len(found)):
        message, begun = publisher.put(1), time.perf_counter()
        wire.ask(message)
        found.append(time.perf_counter() - begun)
    return found


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
