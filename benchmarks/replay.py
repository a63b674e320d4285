"""`scripts/bench --replay`: old records that a new subscriber takes from the begin, beside those that waited for it.

A topic keeps its records. Half of the takers subscribed before they were put, and *consume*. The other half begin at
the earliest record, and *replay*. Takers of both kinds take turns, each alone, and the same records.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.stage import Stage, cpu_seconds
from pubsub import console
from pubsub.cli.bench import BATCH
from pubsub.client import Client

RECORDS: Final = 1_000_000
PAIRS: Final = 5
SIZE: Final = 100
TAKEN: Final = 10_000
"""Records of one `get_many`, as in *consume*."""

UNITS: Final = {
    "consume": "records/s", "replay": "records/s", "ratio": "", "consume processor": "µs", "replay processor": "µs",
    "processor ratio": "",
}  # fmt: skip


def measure(directory: Path, scale: float, pairs: int = PAIRS) -> list[dict[str, float]]:
    """Return the figures of each pair.

    Args:
        scale: 1.0 for a million records; less makes them fewer.
    """
    batches = max(1, int(RECORDS * scale) // BATCH)
    with Stage(directory / "replay") as stage:
        waiting = [stage.client("consumer") for _ in range(pairs)]
        with stage.client("filler") as filler:
            filler.configure("t", keep="ever")
            for client in waiting:
                client.subscribe("t")
            for _ in range(batches):
                filler.put_many("t", [bytes(SIZE)] * BATCH, wait=False)
            filler.flush()
        out = []
        for number, consumer in enumerate(waiting):
            replayer = stage.client("replayer")
            turns = [("consume", consumer), ("replay", replayer)]
            found: dict[str, float] = {}
            for kind, client in reversed(turns) if number % 2 else turns:
                found |= _take(stage, kind, client, batches * BATCH)
            found["ratio"] = found["replay"] / found["consume"]
            found["processor ratio"] = found["replay processor"] / found["consume processor"]
            out.append(found)
        return out


def _take(stage: Stage, kind: str, client: Client, records: int) -> dict[str, float]:
    """Take all, up to the last acknowledgement; the rate, and the processor time of a record in all processes."""
    used, begun = _spent(stage), time.perf_counter()
    if kind == "replay":
        client.subscribe("t", start="earliest")
    left = records
    while left:
        left -= len(client.get_many("t", TAKEN, timeout=60.0))
    client.close()
    taken = time.perf_counter() - begun
    return {kind: records / taken, f"{kind} processor": 1e6 * (_spent(stage) - used) / records}


def _spent(stage: Stage) -> float:
    return time.process_time() + sum(map(cpu_seconds, stage.processes.values()))


def show(pairs: Sequence[dict[str, float]], *, as_json: bool) -> None:
    """Print the figures of each pair, and their medians."""
    middle = {name: statistics.median(pair[name] for pair in pairs) for name in UNITS}
    if as_json:
        console.print_json({"replay": list(pairs), "median": middle, "units": dict(UNITS)})
        return
    table = console.table("figure", "median", *(f"pair {number}" for number in range(1, len(pairs) + 1)), "")
    for name, unit in UNITS.items():
        table.add_row(name, *(f"{pair[name]:,.2f}" for pair in (middle, *pairs)), unit)
    console.print_table(table)
