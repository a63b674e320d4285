"""A second directory of a client, opened under its ID on another host while the client runs: two replicas at once.

Each continues the one subscription whenever its user subscribes, and the other learns that it is superseded. The
messages processed by either count for the client: none may be lost, and none may come to both without the mark.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import apsw

from pubsub.client.core.subscription import DROPPED, PURGED
from pubsub.errors import DataLoss, Superseded
from tests.simulation.applications.application import Application
from tests.simulation.clients import ClientNode
from tests.simulation.disk import NAME
from tests.simulation.history import Seen
from tests.simulation.purged import lost_range
from tests.simulation.world import EPOCH, World


class Replica:
    """A process on an empty directory, which takes its messages for a while.

    Args:
        of: the application of its client.
        node: the process; it has not been started.
        number: its number in the run.
    """

    def __init__(self, world: World, of: Application, node: ClientNode, number: int) -> None:
        self.world, self.of, self.node = world, of, node
        self._directory = -number
        """Lower than those that the client itself has one after the other."""
        self._lines: dict[str, tuple[int, float]] = {}
        """When it asked last: the line in which the client was, and since when that is subscribed at the earliest."""
        self._given: dict[tuple[str, str], tuple[int, float]] = {}
        self._settled: dict[str, float | None] = {}
        node.on_start = self._started

    def _started(self) -> None:
        for reading in self.of.program.readings():
            self.node.later(0.01, partial(self._subscribe, reading.topic))

    def _subscribe(self, topic: str) -> None:
        reading = self.of.program.reading(topic)
        # Where the client has left, or knows nothing, the replica's own subscription may be from any time.
        # Where the client has begun anew and has no answer yet, it may be the one that it had before.
        asked = reading.open_since if reading.wanted and reading.open_since is not None else 0.0
        self._lines[topic], self._settled[topic] = (reading.line, asked), None
        began = self.world.now
        if reading.asked is None:
            reading.asked = began  # From now on its client may continue the subscription of this one.
        if reading.open_since is None:
            reading.open_since = began

        def then(_: Any, error: Exception | None) -> None:
            self.world.note(f"{self.node.name} is told about {topic}: {type(error).__name__}")
            self._settled[topic] = self.world.now if error is None else None
            if error is None:
                reading.take_over(self.world.now, self.of.program.history.deletions)
            if error is None and reading.open_since is None:  # Its client got the confirmation of its leave meanwhile.
                reading.open_since = began
            # The marked messages wait for it now, and may go to another server before it asks.
            seconds = self.world.random.choice((0.01, 0.5)) * self.world.random.random()
            self.node.later(seconds, partial(self._take if error is None else self._subscribe, topic))

        self.node.call(self.node.calls.subscribing.intend(topic, True, None), then)

    def _take(self, topic: str) -> None:
        def handle(message: Any, transaction: Any) -> None:
            self.node.operations += 1
            body = message.body.decode()
            self._given[topic, body] = self._lines[topic]
            transaction.execute(
                "insert into seen (topic, body, id, stamp, doubtful) values (?, ?, ?, ?, ?)",
                (topic, body, message.id, message.stamp / 1e6 - EPOCH, message.doubtful),
            )
            if message.doubtful:
                self.of.program.history.check_mark(self.of.program.reading(topic), body, self._settled[topic])

        def then(taken: Any, error: Exception | None) -> None:
            self.world.note(f"{self.node.name} took {taken} of {topic}: {type(error).__name__}")
            if isinstance(error, DataLoss):
                self._lack(topic, error)
            again = self._subscribe if isinstance(error, Superseded) else self._take
            self.node.later(0.05 + 0.3 * self.world.random.random(), partial(again, topic))

        self.node.call(self.node.processing.process(topic, handle, 0.5, 3), then)

    def _lack(self, topic: str, error: DataLoss) -> None:
        """It got a report of a loss in its client's place."""
        reading = self.of.program.reading(topic)
        if error.reason == DROPPED:
            reading.dropped.append(lost_range(error))
            return
        if error.first not in reading.lost and (self.world.fate.tight or error.reason == PURGED):
            first, last = (int(place.partition(".")[2]) for place in (error.first, error.last))
            reading.excused += last - first + 1
        reading.lost.setdefault(error.first, -1)
        reading.take_over(self.world.now, self.of.program.history.deletions)
        reading.purged = reading.purged or error.reason == PURGED

    def end(self) -> None:
        """It is gone, with its directory: its processed messages are recorded."""
        self.node.end("over")
        name = self.node.name
        path = f"/{name}/{self.node.client}.db"
        if path not in self.node.host.disk.files:
            return
        db = apsw.Connection(path, vfs=NAME)
        db.pragma("locking_mode", "exclusive")
        try:
            tables = {table for (table,) in db.execute("select name from sqlite_schema")}
            statement = "select topic, body, id, stamp, doubtful from seen order by n"
            rows = list(db.execute(statement)) if "seen" in tables else []
        finally:
            db.close()
        self.node.host.disk.restore({})
        parts: dict[str, list[Seen]] = {}
        for topic, body, place, stamp, doubtful in rows:
            line, asked = self._given[topic, body]
            seen = Seen(topic, body, place, stamp, asked, bool(doubtful), line, self._directory)
            parts.setdefault(topic, []).append(seen)
        for topic, part in parts.items():
            self.of.program.reading(topic).parts.insert(0, part)
        self.of.program.history.counters["messages that a replica took"] += len(rows)
