"""Measure a merge of two sides on which delayed messages wait, in the server's loop.

    python benchmarks/delayed.py [ROWS]

Each side has ROWS messages of 100 bytes. The figures are processor time of this thread in seconds: of the decision, and
of the commit with it. Sides without a common message are usual after a split. With common ones, the store is usually
a restored copy. Half of them may be delivered already at each side, which is the dearest case.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from pubsub.base.reserve import ReserveFile
from pubsub.config.settings import ServerSettings
from pubsub.server.group_commit import GroupCommit
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.delayed import Delayed, Waiting

BODY = b"x" * 100
STEP = 5_000
MINE, ITS = 1, 2
"""Publishers of sides without a common message."""


def main(rows: int) -> None:
    """Merge three kinds of sides, and print the figures of each."""
    for title, publisher, common in (("no common ones", ITS, 0), ("all common", MINE, rows), ("half", MINE, rows // 2)):
        with tempfile.TemporaryDirectory() as folder:
            spent, committed = _merged(Path(folder), rows, publisher, common)
        sys.stdout.write(f"{rows:,} rows at each side, {title:15} {spent:6.3f} s, with the commit {committed:6.3f} s\n")


def _merged(folder: Path, rows: int, publisher: int, common: int) -> tuple[float, float]:
    store = Store(folder)
    settings = ServerSettings(directory=folder, id="s1", proxies=("tcp://127.0.0.1:1",))
    loop = GroupCommit(settings, store, ReserveFile(folder / "reserve", 0), random.Random(1), 100.0, time.time())
    state = loop.core.state
    topic = state.create("t")
    loop.commit(100.0)
    first = 1 if publisher == ITS else rows - common + 1
    its = Delayed(shelves=(state.new_shelf(),))
    _fill(store, topic.delayed, topic.number, MINE, 1, rows)
    _fill(store, its, its.shelves[0], publisher, first, rows)
    last, its_last = {MINE: rows}, {publisher: first + rows - 1}
    used = time.thread_time()
    loop.core.delays.merge(topic, its, last, its_last, 101.0)
    spent = time.thread_time() - used
    loop.commit(101.0)
    committed = time.thread_time() - used
    store.close()
    return spent, committed


def _fill(store: Store, delayed: Delayed, shelf: int, publisher: int, first: int, rows: int) -> None:
    due = int(time.time() * 1e6) + 10**12
    for begin in range(first, first + rows, STEP):
        out: list[c.Change] = []
        for counter in range(begin, min(begin + STEP, first + rows)):
            row = Waiting(due + counter * 7_919 % 1_000_003, publisher, counter, 1, 0, len(BODY), shelf)
            delayed.hold(row)
            out.append(c.DelayedKept(shelf, row.due, publisher, counter, 1, 0, BODY))
        with store.guarded():
            store.apply(out)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
