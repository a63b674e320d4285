"""What is measured of a server with a standby: what two disks cost, and how long nobody serves when one is gone.

Both members run on one machine here: they share its cores and its disk, so what they cost is more than it would be on
two hosts, and what lies between them is less.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.measures import MEASURES, Measure
from benchmarks.stage import Stage, cpu_seconds
from pubsub.cli.bench.measures import Figures
from pubsub.cli.cluster import Child
from pubsub.cli.operating import Operator
from pubsub.client.requests import Proxies
from pubsub.config.settings import ClientSettings

ROUNDS_A_SECOND: Final = 5
"""Deaths for each second that a measure is to take, at most ROUNDS_MAX: 100 are ten repetitions."""

ROUNDS_MAX: Final = 10

BATCH: Final = 1_000
PATIENCE_SECONDS: Final = 60.0

_PAIRED: Final = (
    "sync-put", "put-1", "put-100", "put-1000", "concurrent-async", "concurrent-threads", "put-nowait", "end-to-end",
    "delivery",
)  # fmt: skip
"""Measures of any server that say what a standby costs."""


def processor(stage: Stage, size: int, secs: float) -> Figures:
    """Processor time of all members for a record, put in batches of a thousand."""
    bodies, records = [bytes(size)] * BATCH, 0
    with stage.client("putter") as client:
        topic = stage.name("topic")
        client.put(topic, b"first")
        before, end = _spent(stage), time.monotonic() + secs
        while not records or time.monotonic() < end:
            client.put_many(topic, bodies)
            records += BATCH
        return {"members": (_spent(stage) - before) / records * 1e6}


def _spent(stage: Stage) -> float:
    return sum(cpu_seconds(member.process.pid) for member in stage.members)


def _rounds(secs: float) -> int:
    return max(1, min(ROUNDS_MAX, round(secs * ROUNDS_A_SECOND)))


def _absences(stage: Stage, secs: float, end: Callable[[Child], None], after: Callable[[Child], None]) -> Figures:
    """From the end of a primary to the next put that is acknowledged."""
    taken: list[float] = []
    with stage.client("putter") as client:
        topic = stage.name("topic")
        for _ in range(_rounds(secs)):
            primary = stage.primary()
            client.put(topic, b"before", timeout=PATIENCE_SECONDS)
            begun = time.monotonic()
            end(primary)
            client.put(topic, b"after", timeout=PATIENCE_SECONDS)
            taken.append((time.monotonic() - begun) * 1000)
            after(primary)
    return {"median": sorted(taken)[len(taken) // 2], "worst": max(taken)}


def killed(stage: Stage, size: int, secs: float) -> Figures:
    """The primary's process is killed: its connections end."""

    def end(primary: Child) -> None:
        os.kill(primary.process.pid, signal.SIGKILL)

    def after(primary: Child) -> None:
        stage.kill(primary)
        stage.restart(primary)

    return _absences(stage, secs, end, after)


def host_gone(stage: Stage, size: int, secs: float) -> Figures:
    """The primary is silent and its connections stay open, as where its host is gone."""

    def end(primary: Child) -> None:
        os.kill(primary.process.pid, signal.SIGSTOP)

    def after(primary: Child) -> None:
        stage.kill(primary)
        stage.restart(primary)

    return _absences(stage, secs, end, after)


def switch(stage: Stage, size: int, secs: float) -> Figures:
    """A planned change: from the word to the primary to the next put that is acknowledged by the other one."""
    with Proxies.of(ClientSettings(**stage.where)) as proxies:
        operator = Operator(proxies, 10.0, PATIENCE_SECONDS)
        view = operator.look()

        def end(primary: Child) -> None:
            operator.operate("s1", view, "switch")

        return _absences(stage, secs, end, lambda primary: None)


_ABSENCE: Final = {"median": "ms", "worst": "ms"}

STANDBY_MEASURES: Final[Sequence[Measure]] = (
    *(measure for measure in MEASURES if measure.name in _PAIRED),
    Measure("processor", processor, {"members": "µs CPU/record"}),
    Measure("killed", killed, _ABSENCE, sized=False, paired=True),
    Measure("host-gone", host_gone, _ABSENCE, sized=False, paired=True),
    Measure("switch", switch, _ABSENCE, sized=False, paired=True),
)
