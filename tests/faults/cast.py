"""All processes of a soak: proxies behind relays, servers, publishers and subscribers of every kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from pubsub.errors import PubsubError, Unavailable
from tests.faults.checker import Objection
from tests.faults.cluster import Cluster, Process, until
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking
from tests.faults.net import Net
from tests.faults.watch import Watch

TOPICS = ("a", "b", "c/d", "e", "f", "g")
BULK = "bulk"
"""The topic that disks are filled with; it has a publisher and a subscriber of its own, in this process."""

SKEW_SECONDS = 0.5
HOLD_SECONDS = 3.0
PAUSE_SECONDS = 0.15
"""Of a publisher between two steps, at most; a step puts some five messages."""

BEHIND_PAUSE_SECONDS = 2.0
BEHIND_MAX = 5_000
"""Messages that a subscriber may be behind before publishers are told to put less."""

PADDING = 800
BULK_PADDING = 64 * 1024
PATIENCE_SECONDS = 240.0

PUBLISHERS = {  # Which proxies, what steps it makes.
    "plain": (slice(None), ["put", "unwaited"]),
    "lots": (slice(0, 1), ["lot"]),
    "batches": (slice(1, 2), ["batch", "put", "put"]),
    "mixed": (slice(None, None, -1), ["lot", "put", "batch", "unwaited"]),
}
SUBSCRIBERS = {  # Which proxies, what else it is told.
    "first": (slice(0, 1), {"beside": ["process", "process"]}),
    "second": (slice(1, 2), {"clumsy": 0.01}),
    "fickle": (slice(None), {"leaves": ["a", "e"], "leaving": 0.01}),
    "patient": (slice(None), {"beside": ["iterate", "get", "iterate"]}),
}
SPARED = frozenset({"p2", "s3", "mixed", "patient"})
"""One of each role is never killed, so that its memory can be followed from the beginning to the end."""


class Cast:
    """Starts them, tells them what to do, starts them again; a context manager.

    Attributes:
        topics: all that there are; those of a split come in the course of it.
        busy: names of those that a fault has hold of, who may be dead just now.
        objections: what happened that should not have, besides what the checker says.
    """

    def __init__(self, directory: Path, seed: int, record: Path | None = None, *, keys: bool = False) -> None:
        self._stack = ExitStack()
        self.cluster = self._stack.enter_context(Cluster(directory, record, keys=keys))
        self.net = Net(self.cluster, self._stack)
        for _ in range(3):
            self.cluster.server(retention_hold_seconds=HOLD_SECONDS, skew_seconds=SKEW_SECONDS)
        self.cluster.wait_ready()
        self.watch = self._stack.enter_context(Watch(self.net.direct, self.cluster.wire))
        self.topics = list(TOPICS)
        self.busy: set[str] = set()
        self.objections: list[Objection] = []
        self._counts: dict[str, int] = {}
        self._pause = PAUSE_SECONDS
        until(lambda: self.watch.settled((), 3), "all hear each other")
        self.hoarder = Taking(self.cluster.client("hoarder", timeout_seconds=5.0))
        self.hoarder.intend(BULK, True)
        self.filler = Putting(self.cluster.client("filler", timeout_seconds=1.0), "filler", BULK_PADDING)
        addresses = self.cluster.addresses
        self.subscribers = [
            self.cluster.subscriber(name, self.topics, proxies=addresses[which], seed=seed, timeout=5.0, **facts)
            for name, (which, facts) in SUBSCRIBERS.items()
        ]
        for process in self.subscribers:
            process.wait_line("subscribed")
        self.publishers = [
            self.cluster.publisher(
                name,
                self.topics,
                proxies=addresses[which],
                seed=seed,
                timeout=5.0,
                pause=PAUSE_SECONDS,
                padding=PADDING,
                does=does,
            )
            for name, (which, does) in PUBLISHERS.items()
        ]

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def processes(self) -> list[Process]:
        """Everybody but operators."""
        return [*self.cluster.proxies, *self.cluster.servers, *self.publishers, *self.subscribers]

    def object_to(self, kind: str, text: str) -> None:
        """Something should not have happened."""
        self.objections.append(Objection(kind, text))

    def start(self, process: Process, *extra: str, boot: str = "") -> None:
        """Start one again that has ended; a client in this boot of its host, where one is named."""
        if process in (*self.publishers, *self.subscribers):
            process.again(topics=self.topics, pause=self._pause, **({"boot": boot} if boot else {}))
        else:
            process.start(*extra)

    def open(self, topic: str) -> None:
        """Have everybody put on, and take from, a topic more."""
        self.topics.append(topic)
        self._tell(f"topic {topic}", [*self.subscribers, *self.publishers])

    def look_after(self) -> None:
        """Those that ended by themselves are an objection each, and are started again."""
        for process in self.processes:
            if process.name not in self.busy and process.running.poll() is not None:
                self.died(process)
                self.start(process)

    def died(self, process: Process) -> None:
        """It ended by itself."""
        said = process.errors.read_text().strip().splitlines()[-1:]
        self.object_to("died", f"{process.name} ended with {process.running.returncode}: {' '.join(said)}")

    def count(self, process: Process) -> int:
        """How many messages a publisher has put, or a subscriber taken."""
        with process.output.open("rb") as output:
            output.seek(max(0, output.seek(0, 2) - 200))
            lines = [line.split() for line in output.read().split(b"\n")[:-1]]
        numbers = [int(line[1]) for line in lines if len(line) == 2 and line[0] in {b"put", b"took", b"done", b"ended"}]
        self._counts[process.name] = max(self._counts.get(process.name, 0), *numbers, 0)
        return self._counts[process.name]

    def hold_back(self) -> bool:
        """Have publishers put less while somebody cannot keep up; whether they do."""
        put = sum(self.count(process) for process in self.publishers)
        behind = put - min(self.count(process) for process in self.subscribers if process.name != "fickle")
        self._pause = BEHIND_PAUSE_SECONDS if behind > BEHIND_MAX else PAUSE_SECONDS
        self._tell(f"pause {self._pause}", self.publishers)
        return self._pause > PAUSE_SECONDS

    def _tell(self, line: str, processes: list[Process]) -> None:
        for process in processes:
            with suppress(OSError):  # It is dead just now, and will be started with it.
                process.say(line)

    # The end

    def finish(self) -> None:
        """Everybody does what is left and ends; the checker can read then.

        Where a topic still had two holders, what says that nothing follows would not be the last: it is put when every
        topic has one.
        """
        self._await("unsettled", lambda: self.watch.settled([*self.topics, BULK], 3), "every topic has one holder")
        self._end(self.publishers, "done")
        for process in self.subscribers:
            process.say("finish")
        for process in self.subscribers:
            self._await("stuck", lambda process=process: process.lines("finishing"), f"{process.name} has all asked")
        self._flush()
        self._await("unsettled", lambda: self.watch.settled([*self.topics, BULK], 3), "every topic still has one")
        put_end(self.cluster, [*self.topics, BULK])
        self._end(self.subscribers, "ended")
        drain = threading.Thread(target=self._drain, daemon=True)
        drain.start()
        self._await("stuck", lambda: not drain.is_alive(), "the hoarder has all")
        for client in self.cluster.clients:
            client.close()

    def _end(self, processes: list[Process], word: str) -> None:
        for process in processes:
            with suppress(OSError):
                process.say("finish")
        for process in processes:
            self._await(
                "stuck", lambda process=process: process.running.poll() is not None, f"{process.name} says {word}"
            )
            if process.running.poll() != 0:
                self.died(process)

    def _flush(self) -> None:
        def flushed() -> bool:
            try:
                self.filler.flush(5.0)
            except Unavailable:
                return False
            return True

        self._await("stuck", flushed, "the filler is done")

    def _drain(self) -> None:
        while BULK not in self.hoarder.ended:
            with suppress(PubsubError):
                self.hoarder.process(BULK, 1.0)

    def _await(self, kind: str, condition: Callable[[], object], what: str) -> None:
        try:
            until(condition, what, PATIENCE_SECONDS)
        except AssertionError as error:
            self.object_to(kind, str(error))
