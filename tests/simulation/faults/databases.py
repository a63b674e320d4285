"""Faults of the databases in which clients have their state, and of the links to them."""

from __future__ import annotations

from functools import partial

from tests.simulation.applications.application import Application
from tests.simulation.cast import Cast
from tests.simulation.clients import ClientNode
from tests.simulation.database.connection import CRASHED
from tests.simulation.database.usurping import Usurper
from tests.simulation.disk import disks
from tests.simulation.faults.kinds import Fault
from tests.simulation.supervisor import Supervisor


class OfDatabases:
    """The faults of databases of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random
        self._images: dict[str, tuple[float, bytes, dict[str, int]]] = {}
        """Of databases: the time of each copy, its content, and the subscriptions at that time."""

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "lose commit": self.lose_commit,
            "lose link": self.lose_link,
            "database away": self.away,
            "database crash": self.crash,
            "promote": self.promote,
            "usurp": self.usurp,
        }

    def _any(self) -> Application | None:
        found = [one for one in self.cast.applications if one.node.database]
        return self.random.choice(found) if found else None

    def lose_commit(self) -> None:
        """The next commit of a client gets no answer: it never arrived, happened, or happens later."""
        one = self._any()
        if one is not None:
            self.world.databases.endings[one.name] = self.random.choice(("never", "done", "late", "late"))

    def lose_link(self) -> None:
        """A client's connection is lost at one of its next statements."""
        one = self._any()
        known = self.world.databases.all_of.get(one.name) if one is not None else None
        if known:
            self.random.choice(known).lose_in = self.random.randrange(12)

    def away(self) -> None:
        """A database takes no statements for a while, sometimes for longer than a client waits."""
        one = self._any()
        if one is not None:
            database = self.world.databases.named(one.node.database)
            database.away_until = self.world.now + self.random.choice((0.1, 1.0, 3.0)) * self.random.random()

    def crash(self) -> None:
        """A database ends, and starts again: now, or just after a commit that need not be durable."""
        one = self._any()
        if one is not None and self.random.random() < 0.5:
            self.world.databases.endings[one.name] = CRASHED
        elif one is not None:
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
        lines = {reading.topic: reading.line for reading in one.program.readings() if reading.wanted}
        if known is None:
            self._images[one.name] = self.world.now, database.image(), lines
            return
        if any(reading.unsure for reading in one.program.readings()) or not known[2].items() <= lines.items():
            return  # The service has ended a subscription that the older state has.
        self.world.note(f"{one.name} finds its database as of {known[0]}")
        one.records.collect()
        one.program.directory_replaced(known[0])
        if self.random.random() < 0.4:  # A dump is restored while the processes are connected.
            database.restore(known[1])
        else:
            database.promote(known[1])
        if one.node.alive:  # Until its next statement it works on with what it knows.
            one.node.went_back = partial(one.program.directory_replaced, known[0])
        if self.random.random() < 0.3:
            one.node.end("killed")
            self.supervisor.restart(one.node)

    def usurp(self) -> None:
        """A process does not know that its client's lock is free, and another process opens the client."""
        one = self._any()
        if (
            one is None
            or one.program.retries.on
            or any(known.of is one and known.node.alive for known in self.cast.usurpers)
        ):
            return
        databases = self.world.databases
        connection = databases.connections.get(one.name)
        if connection is None or not one.node.alive:
            return
        released = self.random.random() < 0.5
        if released:  # A statement of the application released all its locks.
            connection.database.locks.pop(one.name, None)
            if self.random.random() < 0.5:
                databases.endings[one.name] = "late"
        else:
            for lost in databases.all_of[one.name]:
                lost.drop(0.0)
        if self.random.random() < 0.6:
            one.node.pause(2.0 * self.random.random())
        number = len(self.cast.usurpers) + 1
        host = self.world.host(f"{one.name}_{number}", one.node.host.skew)
        disks().disks[host.name] = host.disk
        node = ClientNode(
            self.world, host, self.cast.proxy_names(), power_safe=False, client=one.name, database=one.node.database
        )
        self.cast.usurpers.append(Usurper(self.world, one, node))
        self.world.after(0.0 if released else 0.05 * self.random.random(), node.start)
        self.world.after(0.2 + 2.0 * self.random.random(), node.end, "killed")
