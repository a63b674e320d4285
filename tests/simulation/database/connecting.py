"""Connections to the simulated databases, in place of psycopg's, under the product's own store.

The product's code of `pubsub.client.storage.postgres` runs as shipped: its life, its outcomes, its look-ups. Within a
run its `connect` makes a `SimulatedConnection`, its clock is the world's, and its tokens come from the seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from pubsub.client import settling as client_settling
from pubsub.client.storage.postgres import (
    handler_database,
    handler_pool,
    installing,
    life,
    looking,
    outcomes,
    settling,
)
from pubsub.client.storage.postgres.connecting import shown
from pubsub.errors import StorageError
from tests.simulation.database.connection import (
    LINGERS,
    NOT_DURABLE,
    OWN_TABLE,
    ROLLS_BACK,
    SimulatedConnection,
)
from tests.simulation.database.engine import Database, parts_of

if TYPE_CHECKING:
    from tests.simulation.clients import ClientNode
    from tests.simulation.world import Host, World


def _run_at_once(thread: Any) -> bool:
    """Run the thread of a look at once: a step of a process takes no time in the world."""
    thread.run()
    return True


class Databases:
    """All databases of a run, and the connections to them.

    Args:
        world: its hosts are the places from which clients connect.

    Attributes:
        by_name: those that were named so far.
        connections: by host, the one of the session; all_of: this one and those of handlers.
        unreachable: by host, until when it reaches no database.
        endings: by host, how its next commit loses its answer: it "never" arrives, is "done", or is "late".
    """

    def __init__(self, world: World, counters: Any) -> None:
        self.world, self.counters = world, counters
        self.random = Random(f"databases of {world.seed} {world.fate.databases}")
        self.by_name: dict[str, Database] = {}
        self.connections: dict[str, SimulatedConnection] = {}
        self.all_of: dict[str, list[SimulatedConnection]] = {}
        self.unreachable: dict[str, float] = {}
        self.endings: dict[str, str] = {}
        self._spent = (0.0, 0.0)

    def named(self, name: str) -> Database:
        """Return a database, which is made at its first use."""
        if name not in self.by_name:
            self.by_name[name] = Database(name, self.random, self.monotonic)
        return self.by_name[name]

    def client_of(self, host: Host) -> str:
        """Return the client of a host: hosts of the same client have a suffix."""
        return host.name.partition("_")[0]

    def away(self, database: Database, host: Host) -> bool:
        """Return True if a host does not reach a database now."""
        now = self.monotonic()
        return now < database.away_until or now < self.unreachable.get(host.name, 0.0)

    # Replacements of the machine's parts in the product's modules

    def monotonic(self) -> float:
        """Return the time of the world, and the sleep of the step under way."""
        at, spent = self._spent
        return self.world.now + (spent if at == self.world.now else 0.0)

    def sleep(self, seconds: float) -> None:
        """Let time pass for databases only: a client does not act meanwhile."""
        at, spent = self._spent
        self._spent = self.world.now, (spent if at == self.world.now else 0.0) + seconds
        for database in self.by_name.values():
            database.advance()

    def token_hex(self, size: int) -> str:
        return self.random.randbytes(size).hex()

    def connect(self, url: Any, client: str) -> Any:
        """Connect as `pubsub.client.storage.postgres.connecting.connect` does, for the state of a client."""
        made = self.connect_beside(url, client)
        self.connections[made.host.name] = made
        return made

    def connect_beside(self, url: Any, client: str) -> Any:
        """Connect to look at the state of another client."""
        host_name, name = parts_of(url)
        host, database = self.world.hosts[host_name], self.named(name)
        if host.disk.kill_in is not None:
            host.disk.step()
        database.advance()
        if self.away(database, host):
            host.disk.troubled = True
            raise StorageError(shown(url, client), "cannot be reached: the server is away")
        made = SimulatedConnection(self, database, host)
        known = [one for one in self.all_of.get(host_name, ()) if not (one.closed or one.backend.gone)]
        self.all_of[host_name] = [*known, made]
        return made

    def mend(self) -> None:
        """All is well with databases and links from here on."""
        self.unreachable.clear()
        self.endings.clear()
        for connection in (one for known in self.all_of.values() for one in known):
            connection.lose_in = None
        for database in self.by_name.values():
            database.away_until = 0.0

    def misuse(self, transaction: Any) -> None:
        """Have some handlers lower the durability of their commit, or end the transaction and begin another one."""
        chance = self.random.random()
        if chance < 0.1:
            transaction.execute(NOT_DURABLE)
        elif chance < 0.12 and not self.world.over:
            self.counters["transactions that a handler ended"] += 1
            transaction.execute(ROLLS_BACK)

    # Acts of applications beside their clients

    def make_table(self, node: ClientNode, name: str, columns: str) -> None:
        """Make a table of an application, if it is not there."""
        own = f"{name}_{self.client_of(node.host)}"
        database = self.named(node.database)
        if not database.has(own):
            database.read(f"create table {own} (n integer primary key, {columns})")

    def tables_of(self, node: ClientNode) -> tuple[list[Any], list[Any], set[str]] | None:
        """Return handled messages, dead letters and tokens of an application; None: there are no tables yet."""
        database, client = self.named(node.database), self.client_of(node.host)
        if not database.has(f"sent_{client}"):
            return None
        seen = database.read(f"select topic, body, id, stamp, doubtful, aside from seen_{client} order by n")
        letters = database.read(
            "select topic, body from pubsub.dead_letters where client = %s and body is not null", (client,)
        )
        return seen, letters, {token for (token,) in database.read(f"select token from sent_{client}")}

    def rows_of(self, node: ClientNode, name: str, select: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table of an application."""
        own = f"{name}_{self.client_of(node.host)}"
        database = self.named(node.database)
        return database.read(OWN_TABLE.sub(own, select)) if database.has(own) else []

    def process_ended(self, host: Host) -> None:
        """The process of a host is gone: its memory is lost, and its connections are soon."""
        for url, client in list(life.remembered):
            if url.startswith(f"postgresql://{host.name}@"):
                del life.remembered[url, client]
        self.connections.pop(host.name, None)
        for connection in self.all_of.pop(host.name, ()):
            if not connection.closed:
                connection.drop(self.random.choice(LINGERS))

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Have the product's modules use these databases, the world's clock, and tokens of the seed."""
        if not self.world.fate.databases:
            yield
            return
        clock = SimpleNamespace(monotonic=self.monotonic, sleep=self.sleep)
        tokens = SimpleNamespace(token_hex=self.token_hex)
        with contextlib.ExitStack() as stack:
            known = dict(life.remembered)
            life.remembered.clear()
            stack.callback(lambda: (life.remembered.clear(), life.remembered.update(known)))
            stack.enter_context(mock.patch.object(outcomes, "connect", self.connect))
            for module in (settling, looking, handler_pool):
                stack.enter_context(mock.patch.object(module, "connect", self.connect_beside))
            for module in (outcomes, life):
                stack.enter_context(mock.patch.object(module, "time", clock))
            stack.enter_context(mock.patch.object(client_settling, "start_thread", _run_at_once))
            for module in (life, handler_database):
                stack.enter_context(mock.patch.object(module, "secrets", tokens))
            stack.enter_context(mock.patch.object(installing, "prepare", return_value=None))
            yield
