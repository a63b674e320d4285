"""Measure a start by time, at the last N and beside a position in a log of many batches, in the server's loop.

    python benchmarks/starts.py [BATCHES]

Each start is decided by rows in the store; the figures are milliseconds: the median and the 99th of 100.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pubsub.protocol.names import Start
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.topic import Log, Topic

LOOKS = 300
BODY = b"x" * 100


def main(batches: int) -> None:
    """Fill a store, and print the figures of each kind of start."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for first in range(1, batches + 1, 10_000):
            stop = min(first + 10_000, batches + 1)
            with store.guarded():
                store.apply([c.BatchAppended(1, n, 1, 1, n, 10 * n, 0, 100 * n, BODY) for n in range(first, stop)])
        log = Log(1, "a" * 16, end=batches + 1, total=100 * batches)
        topic = Topic(1, "t", log, {log.id: log}, history=(Span(log.id, 1),))
        for kind in ("time", "position", "last:1", "last:1000", "last:10000"):
            taken = []
            for _ in range(LOOKS):
                at = random.randrange(1, batches)
                starts: dict[str, Start] = {"time": 10 * at, "position": (log.id, at)}
                begun = time.perf_counter()
                cursor_at(topic, starts.get(kind, kind), 10 * batches, 0, store.reader)
                taken.append(1000 * (time.perf_counter() - begun))
            taken.sort()
            line = f"{kind:11} median {statistics.median(taken):8.3f} ms   p99 {taken[int(0.99 * LOOKS)]:8.3f} ms\n"
            sys.stdout.write(line)
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
