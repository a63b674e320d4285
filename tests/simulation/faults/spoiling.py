"""A damaged page of one topic: a server's reads of it return nothing, until the server starts on a sound disk again.

SQLite refuses the commit of a transaction that met such a page, and so does the spoiled store here. The judged rule:
only that topic is unavailable, the server continues, and its answers about other topics are true.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from pubsub.errors import StoreDamaged
from pubsub.server.storage.reader import Reader
from pubsub.server.storage.store import Store
from pubsub.server.topic.delivery import Batch
from tests.simulation.cast import Cast
from tests.simulation.faults.kinds import Fault
from tests.simulation.members import MemberNode
from tests.simulation.nodes import ServerNode
from tests.simulation.supervisor import Supervisor


class Spoiling:
    """The damaged pages of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {"spoil": self.spoil}

    def spoil(self) -> None:
        """Nothing of one topic can be read any more at one server."""
        node = self.cast.any_server()
        if not node.alive or node.restarting or isinstance(node, MemberNode):
            return
        state = node.core.state
        topics = [topic for name, topic in sorted(state.topics.items()) if not topic.frozen and name not in state.held]
        if not topics or isinstance(state.reader, Spoiled):
            return
        topic = self.random.choice(topics)
        self.world.note(f"{node.name} cannot read {topic.name}")
        state.reader = Spoiled(node, {log.number for log in topic.logs.values()}, self.cast.counters)
        self.world.after(0.5 + self.random.random(), self._mend, node, node.life)

    def _mend(self, node: ServerNode, life: int) -> None:
        """The server is started again, on a sound copy of the page."""
        if node.alive and node.life == life:
            node.end("killed")
            self.supervisor.restart(node)


class Spoiled:
    """Reads a store with some unreadable logs.

    Args:
        node: the server, whose store does not commit a transaction that met one of them.
        logs: their numbers.
        counters: counts the meetings.
    """

    def __init__(self, node: ServerNode, logs: set[int], counters: dict[str, int]) -> None:
        self._node, self._logs, self._counters = node, logs, counters
        self._store: Store = node.group_commit.store
        self._reader: Reader = self._store.reader
        self._commit, self._doomed = self._store.commit, False
        self._expected = node.expected
        self._store.commit = self._commit_unless_doomed  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def batches(self, log: int, offset: int, high: int, *, cached: bool = True) -> Iterator[Batch]:
        """As of a reader; nothing of the spoiled logs."""
        if log in self._logs:
            self._doomed = self._store.db.in_transaction
            self._counters["spoiled pages met"] = self._counters.get("spoiled pages met", 0) + 1
            raise StoreDamaged(str(self._store.path), "spoiled")
        return self._reader.batches(log, offset, high, cached=cached)

    def _commit_unless_doomed(self) -> None:
        if not self._doomed:
            self._commit()
            return
        self._doomed = False
        self._node.found.append(f"{self._node.name} may not commit: it met a damaged page within the transaction")
        self._node.expected = self._is_expected  # type: ignore[method-assign]
        raise apsw.CorruptError("database disk image is malformed")

    def _is_expected(self, error: BaseException) -> bool:
        return isinstance(error, StoreDamaged) or self._expected(error)
