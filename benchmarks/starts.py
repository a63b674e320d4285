"""Measure a start by time, at the last N and beside a position in a log of many batches, in the server's loop.

    python benchmarks/starts.py [BATCHES]

Each start is decided by rows in the store. The figures are milliseconds of processor time of this thread: the median,
the 99th of 100 and the most of `LOOKS` starts. Beside them is the 99th of 100 by the clock, which counts the time of
other processes too. A log of which compaction left every other batch, one whose records have a watermark after a merge,
and one without the bytes of its older half show what these cost.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pubsub.protocol.names import Start
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.compacted import Parts, Thinned
from pubsub.server.topic.shown import times
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import begun_all, cursor_at, with_bodies
from pubsub.server.topic.topic import Log, Topic

LOOKS = 300
BODY = b"x" * 100
STEP = 10_000


def main(batches: int) -> None:
    """Fill a store with four logs, and print the figures of each kind of start."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        plain, merged = _topic(1, batches), _topic(1, batches, watermark=2)
        compacted, bare = _topic(2, batches), _topic(3, batches)
        _fill(store, 1, range(1, batches + 1))
        _fill(store, 2, range(1, batches + 1, 2))
        compacted.compacted = {compacted.open.id: _parts(batches)}
        _fill(store, 3, range(1, batches + 1), without_bytes=batches // 2)
        kinds = ("time", "position", "last:1", "last:1000", "last:10000")
        for title, topic in (("", plain), ("compacted, ", compacted), ("after a merge, ", merged), ("bare, ", bare)):
            for kind in kinds:
                _measure(title + kind, _start(topic, kind, batches, store))
            _measure(f"{title}times", lambda topic=topic: _count(topic, store))  # type: ignore[misc]
        store.close()


def _topic(number: int, batches: int, watermark: int = 0) -> Topic:
    log = Log(number, f"{number:016x}", end=batches + 1, total=100 * batches)
    span = Span(log.id, 1, batches + 1 if watermark else None, watermark)
    watermarks = {watermark: {1: batches // 2}} if watermark else {}
    return Topic(number, "t", log, {log.id: log}, history=(span,), watermarks=watermarks)


def _fill(store: Store, log: int, offsets: range, without_bytes: int = 0) -> None:
    for begin in range(0, len(offsets), STEP):
        rows: list[c.Change] = [
            c.BatchAppended(log, n, 1, 1 + n % 3, n, 10 * n, 0, 100 * n, BODY if n > without_bytes else None)
            for n in offsets[begin : begin + STEP]
        ]
        with store.guarded():
            store.apply(rows)


def _parts(batches: int) -> Parts:
    """Return parts with 10,000 records left in each."""
    ends: Iterator[int] = iter(range(1, batches + 1, 2 * STEP))
    return tuple(
        Thinned(low, min(low + 2 * STEP, batches + 1), (min(low + 2 * STEP, batches + 1) - low) // 2) for low in ends
    )


def _start(topic: Topic, kind: str, batches: int, store: Store) -> Callable[[], object]:
    def look() -> object:
        at = random.randrange(1, batches)
        starts: dict[str, Start] = {"time": 10 * at, "position": (topic.open.id, at)}
        return cursor_at(topic, starts.get(kind, kind), 10 * batches, 0, store.reader)

    return look


def _count(topic: Topic, store: Store) -> object:
    spans = begun_all(topic, with_bodies(topic, topic.history, store.reader), 0, store.reader)
    return times(topic, spans, store.reader)


def _measure(title: str, look: Callable[[], object]) -> None:
    spent, taken = [], []
    for _ in range(LOOKS):
        begun, used = time.perf_counter(), time.thread_time()
        look()
        spent.append(1000 * (time.thread_time() - used))
        taken.append(1000 * (time.perf_counter() - begun))
    spent.sort()
    taken.sort()
    place = int(0.99 * LOOKS)
    sys.stdout.write(
        f"{title:26} median {statistics.median(spent):7.3f} ms   p99 {spent[place]:7.3f} ms   most {spent[-1]:7.3f} ms"
        f"   by the clock p99 {taken[place]:8.3f} ms\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
