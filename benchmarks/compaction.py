"""Measure the compaction of a topic: the time of each round in the server's loop, and of all rounds without pauses.

    python benchmarks/compaction.py [KEYS] [BATCH]

Each key is put twice, in another order the second time, in batches of BATCH records with bodies of 100 bytes. The
figures are those of the server's core and its store in this process. Other parts of the server do nothing meanwhile.
A round ends by the clock. So on a busy machine the processor time of this thread says how long a round takes the loop.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from zlib import crc32

from pubsub.base.reserve import ReserveFile
from pubsub.config.settings import ServerSettings
from pubsub.protocol import Configure, Put, encode_batch
from pubsub.protocol.topic_settings import encode_settings
from pubsub.server.group_commit import GroupCommit
from pubsub.server.ownership.sole_owner import Compacting, Operation
from pubsub.server.state.replies import Origin
from pubsub.server.storage.store import Store

TOPIC = "prices"
CLIENT = Origin(0, b"c", 1)
LATER = 10_000.0
"""Seconds after the puts; all of them are old enough by then."""


class Server:
    """A server's core with a store, and no sockets."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        settings = ServerSettings(directory=folder, id="s1", proxies=("tcp://127.0.0.1:1",))
        self.store = Store(folder)
        self.loop = GroupCommit(
            settings, self.store, ReserveFile(folder / "reserve", 0), random.Random(1), self.now, time.time()
        )
        self.core = self.loop.core
        self._asked: list[Operation] = []
        self.core.sole_owner.ask = self._ask  # type: ignore[method-assign]

    def _ask(self, topic: str, operation: Operation, size: int = 0) -> bool:
        self._asked.append(operation)
        return True

    def ask(self, message: Put | Configure) -> None:
        self.core.handle(CLIENT, message, self.now)
        self.loop.commit(self.now)
        self.core.outgoing(self.now)

    def compact(self) -> list[tuple[float, float]]:
        """Run one pass, and return the seconds of each round with its commit: processor time, and by the clock."""
        compaction, rounds = self.core.retention.compaction, list[tuple[float, float]]()
        compaction.clock = time.perf_counter
        compaction.look_at(TOPIC)
        while not self.core.state.counters["compactions"]:
            self.now = max(self.now, compaction.deadline())
            compaction.tick(self.now)  # Begins the pass, and asks whether this server is the sole owner.
            for operation in self._asked:
                if isinstance(operation, Compacting):
                    compaction.decided(operation, True, self.now)
            self._asked.clear()
            used, begun = time.thread_time(), time.perf_counter()
            self.core.state.uncommitted.rows += compaction.tick(self.now)
            self.loop.commit(self.now)
            rounds.append((time.thread_time() - used, time.perf_counter() - begun))
            self.core.outgoing(self.now)
        return rounds


def main(keys: int, batch: int) -> None:
    """Fill a topic, compact it, and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        values = encode_settings({"keep": "latest"})
        server.ask(Configure("ops", TOPIC, "a" * 16, "", values=values))
        counter, order = 1, list(range(keys))
        for _ in range(2):
            random.Random(counter).shuffle(order)
            for low in range(0, keys, batch):
                some = [b"key %d" % number for number in order[low : low + batch]]
                body = encode_batch([b"x" * 100] * len(some), some)
                server.ask(Put("alice", TOPIC, counter, "b" * 16, len(some), counter - 1, crc32(body), body=body))
                counter += len(some)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        server.now += LATER
        found = server.compact()
        gone = server.core.state.counters["records_compacted"]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        spent = sum(used for used, _ in found)
        lines = [
            f"{2 * keys:,} records of {keys:,} keys in batches of {batch:,}: {gone:,} went in {len(found):,} rounds",
            *(f"a round, {kind}: {_shares(sorted(one))}"
              for kind, one in zip(("processor", "by the clock"), zip(*found, strict=True), strict=True)),
            f"all rounds: {spent:.1f} s, {2 * keys / spent:,.0f} records/s; memory grew by {grown // 1024} MiB",
        ]  # fmt: skip
        sys.stdout.write("\n".join(lines) + "\n")
        server.store.close()


def _shares(rounds: list[float]) -> str:
    median, late, most = (1000 * rounds[int(share * (len(rounds) - 1))] for share in (0.5, 0.99, 1))
    return f"median {median:.1f} ms, p99 {late:.1f} ms, most {most:.1f} ms"


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]), *(1_000_000, 100)[len(sys.argv) - 1 :])
