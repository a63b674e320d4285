"""Readers of topics as tables, and the judgement on what their tables show in the end.

    1   in the end a table has the last message of each key, as a new reader of the topic's begin has
    2   the end of a time to live removes the value, and no earlier one comes back

A deletion keeps its text in the simulation (see `compacting`), so a table shows it as a value. It counts as none here.
"""

from __future__ import annotations

from pubsub.base.clock import MICROSECONDS
from pubsub.client.table_view import View
from pubsub.errors import Refused, Unavailable
from pubsub.protocol import Status
from tests.simulation.compacting import Compacted, deletes
from tests.simulation.history import History
from tests.simulation.tasks import Task
from tests.simulation.world import Host, World


class TableReader(Task):
    """Follows a topic as a table, from the begin after each of its starts."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str) -> None:
        super().__init__(world, host, proxies, history, topic)
        self.view = View(self.name, topic)

    def go(self) -> None:
        self.view = View(self.name, self.topic)
        self._look()

    def _look(self) -> None:
        self.ask(self.view.request(), self._got)

    def _got(self, status: Status) -> None:
        more, begun = True, self.view.begun
        try:
            more = self.view.receive(status, self.host.wall() * MICROSECONDS)
        except (Refused, Unavailable) as error:
            self.history.violate(f"{self.name} cannot read the table of {self.topic}: {error}")
        self.history.counters["tables read again"] += self.view.begun - begun
        self.history.counters["looks of tables"] += not more
        self.finished = self.finishing and not more
        self.soon(self._pause(more), self._look)

    def _pause(self, more: bool) -> float:
        """Return the seconds until the next page; some are long, so that values and their deletions go meanwhile."""
        random = self.world.random
        if self.finishing:
            return 0.01 if more else 0.1
        slow = random.random() < 0.1
        return random.uniform(0.5, 3.0) if slow else random.expovariate(1 / self.world.fate.think)

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return "" if self.finished else f"{self.name} has not read the table of {self.topic}"

    def judge(self, known: Compacted) -> None:
        """Object to a table that differs from the topic."""
        table = known.tables.get(self.topic)
        if table is None or self.topic in self.history.given_up or self.view.lost:
            return
        values, now = self.view.values.items(), known.wall() * MICROSECONDS
        shown = {key: one.body.decode() for key, one in values if not (one.ends <= now or deletes(one.body))}
        # It keeps what it read before a purge, or before the topic kept the latest messages.
        since = max(known.since[self.topic], self.history.purges.last(self.topic, unread=False))
        puts = self.history.puts
        shown = {key: body for key, body in shown.items() if key in table or puts[body].invoked > since}
        self.history.counters["tables compared"] += 1
        if shown != table:
            self.history.violate(f"the table of {self.topic} at {self.name} is {shown}, and the topic has {table}")
