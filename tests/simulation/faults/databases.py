"""Faults of the databases in which clients have their state, and of the links to them."""

from __future__ import annotations

from tests.simulation.applications.application import Application
from tests.simulation.cast import Cast
from tests.simulation.database.connecting import SimulatedConnection
from tests.simulation.faults.kinds import Fault
from tests.simulation.supervisor import Supervisor


class OfDatabases:
    """The faults of databases of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random
        self._images: dict[str, tuple[float, bytes]] = {}
        """Of databases: the time of each copy, and its content."""

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "lose commit": self.lose_commit,
            "lose link": self.lose_link,
            "database away": self.away,
            "database crash": self.crash,
            "promote": self.promote,
        }

    def _any(self) -> Application | None:
        found = [one for one in self.cast.applications if one.node.database]
        return self.random.choice(found) if found else None

    def _connection(self) -> SimulatedConnection | None:
        one = self._any()
        return None if one is None else self.world.databases.connections.get(one.name)

    def lose_commit(self) -> None:
        """The next commit of a client gets no answer: it never arrived, happened, or happens later."""
        connection = self._connection()
        if connection is not None:
            connection.ending = self.random.choice(("never", "done", "late", "late"))

    def lose_link(self) -> None:
        """A client's connection is lost at one of its next statements."""
        connection = self._connection()
        if connection is not None:
            connection.lose_in = self.random.randrange(12)

    def away(self) -> None:
        """A database takes no statements for a while, sometimes for longer than a client waits."""
        one = self._any()
        if one is not None:
            database = self.world.databases.named(one.node.database)
            database.away_until = self.world.now + self.random.choice((0.1, 1.0, 3.0)) * self.random.random()

    def crash(self) -> None:
        """A database ends, and starts again."""
        one = self._any()
        if one is not None:
            database = self.world.databases.named(one.node.database)
            database.crash()
            database.away_until = self.world.now + self.random.choice((0.02, 0.3)) * self.random.random()

    def promote(self) -> None:
        """A replica is behind from now on; or, where there is one, it takes over."""
        one = self._any()
        if one is None or one.node.life == 0:
            return
        database = self.world.databases.named(one.node.database)
        known = self._images.pop(one.name, None)
        if known is None:
            self._images[one.name] = (self.world.now, database.image())
            return
        self.world.note(f"{one.name} finds its database as of {known[0]}")
        one.records.collect()
        one.program.directory_replaced(known[0])
        database.promote(known[1])
        node = one.node
        if self.random.random() < 0.5:
            node.end("killed")
        else:
            node.close()
        self.supervisor.restart(node)
