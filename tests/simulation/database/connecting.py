"""Connections to the simulated databases, in place of psycopg's, under the product's own store.

The product's code of `pubsub.client.storage.postgres` runs as shipped: its life, its outcomes, its look-ups. Within a
run its `connect` makes a `SimulatedConnection`, its clock is the world's, and its tokens come from the seed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import psycopg
from psycopg.pq import TransactionStatus

from pubsub.client import settling as client_settling
from pubsub.client.storage.postgres import (
    beside,
    handler_database,
    handler_pool,
    installing,
    life,
    looking,
    outcomes,
    settling,
)
from pubsub.client.storage.postgres.connecting import Place, shown
from pubsub.errors import StorageError
from tests.simulation.database.engine import Backend, Database, parts_of
from tests.simulation.disk import Killed

if TYPE_CHECKING:
    from tests.simulation.clients import ClientNode
    from tests.simulation.world import Host, World

LINGERS = (0.0, 0.0, 0.05, 1.0)
"""Seconds after which a backend sees that its client is gone: a lost host tells nobody."""

_BEGIN = re.compile(r"begin[a-z ]*; select set_config\('pubsub\.tx', '([^']*)', true\)")
_END = re.compile(r"select pubsub\.step\('([^']*)', '([^']*)', (\d+), '([^']*)'\); commit")
_PUT = re.compile(r"with added as \((.*) returning 1\) select pubsub\.step\(%s, %s, %s, ''\) from added")
_OWN = re.compile(r"\b(seen|sent|effects)\b(?!\()")
_TERMINATE = "select pg_terminate_backend(%s)"
_WAITS = "select exists (select from pg_locks"
_END_BACKEND = "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s"
_IGNORED = ("set transaction ", "set local lock_timeout", "set constraints all immediate")


NOT_DURABLE = "set local synchronous_commit = off"
KILLED_LATE = "late, killed"
"""An ending: the commit of a handler is on its way when its process is killed."""

ROLLS_BACK = "rollback; begin"
"""Statements of handlers that a client must not take as they are."""


class Lost(psycopg.OperationalError):
    """The connection is lost."""


class Cursor:
    """A cursor of a simulated connection."""

    def __init__(self, connection: SimulatedConnection) -> None:
        self._connection = connection
        self.adapters = SimpleNamespace(register_dumper=lambda kind, dumper: None)
        self.description: Any = None
        self.statusmessage = ""
        self._rows: list[Any] = []

    def execute(self, text: str, parameters: Sequence[Any] | None = None) -> Cursor:
        self._rows, has_rows, self.statusmessage = self._connection.run(text, tuple(parameters or ()))
        self.description = [] if has_rows else None
        return self

    def executemany(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(text, row)

    def nextset(self) -> None:
        """There is no further result: the last one counts."""

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[Any]:
        yield from self.fetchall()

    @property
    def get(self) -> Any:
        """The only value, as a cursor of the file store has it."""
        return self.fetchall()[0][0]


class SimulatedConnection:
    """A connection, with the attributes of `StoreConnection` that the product uses.

    Attributes:
        broken: it is lost, and its client knows that.
        lose_in: number of statements until it is lost; None: never.
    """

    guarded = False
    unused = read_committed = True

    def __init__(self, databases: Databases, database: Database, host: Host) -> None:
        self.databases, self.database, self.host = databases, database, host
        self.backend: Backend = database.connect()
        self.pid, self.since, self.place = self.backend.pid, self.backend.since, Place(*database.place)
        self.broken = self.closed = False
        self.lose_in: int | None = None
        self._epoch = host.disk.epoch

    @property
    def info(self) -> Any:
        status = TransactionStatus.IDLE if self.backend.log is None else TransactionStatus.INTRANS
        return SimpleNamespace(transaction_status=TransactionStatus.UNKNOWN if self.broken or self.closed else status)

    def cursor(self, *, binary: bool = False) -> Cursor:
        return Cursor(self)

    def own_cursor(self) -> Cursor:
        return Cursor(self)

    def execute(self, text: str, parameters: Sequence[Any] | None = None, *, prepare: bool | None = None) -> Cursor:
        return Cursor(self).execute(text, parameters)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.database.begin(self.backend)
        try:
            yield
        except BaseException:
            self.database.roll_back(self.backend)
            raise
        self._arrives()
        self.database.commit(self.backend)

    @property
    def is_lost(self) -> bool:
        """Return True if the next statement will fail."""
        return self.broken or self.closed or self.backend.gone or self.databases.away(self.database, self.host)

    def close(self) -> None:
        """The client lets go. The server's end is gone a moment later."""
        if not self.closed:
            self.closed = True
            self.database.leave(self.backend, 0.0)
            self.database.advance()

    def discard(self) -> None:
        self.close()

    def drop(self, seconds: float) -> None:
        """The process is gone, or its link is; the server's end stays for a while."""
        self.database.leave(self.backend, seconds)

    # Statements

    def _lose(self, *, backend_stays: bool = False) -> None:
        """The client learns that the connection is lost."""
        self.broken = self.host.disk.troubled = True
        self.databases.counters["connections lost"] += 1
        if not backend_stays:
            self.drop(self.databases.random.choice(LINGERS))
        raise Lost("the connection is lost")

    def _arrives(self) -> None:
        """A statement is on its way; the process may be killed here, and the connection may be lost."""
        if self._epoch != self.host.disk.epoch:
            raise Killed
        if self.host.disk.kill_in is not None:
            self.host.disk.step()
        self.database.advance()
        if self.broken or self.closed:
            raise Lost("the connection is closed")
        if self.lose_in is not None:
            self.lose_in -= 1
            if self.lose_in < 0:
                self._lose()
        if self.backend.gone or self.databases.away(self.database, self.host):
            self._lose()

    def run(self, text: str, parameters: tuple[Any, ...]) -> tuple[list[Any], bool, str]:
        """Run a statement; return its rows, True if it has some, and the tag of the command."""
        database, backend = self.database, self.backend
        self._arrives()
        if found := _END.fullmatch(text):
            self._end(found[1], found[2], int(found[3]), found[4])
            return [], False, "COMMIT"
        if found := _PUT.fullmatch(text):
            *values, client, token, number = parameters
            database.begin(backend)
            try:
                database.execute(backend, found[1], values)
            except psycopg.Error:
                database.roll_back(backend)
                raise
            self._end(client, token, number, "")
            return [], True, "SELECT 1"
        if found := _BEGIN.fullmatch(text):
            database.begin(backend, found[1])
            return [], False, "SET"
        if text == "rollback":
            database.roll_back(backend)
            return [], False, "ROLLBACK"
        if text == ROLLS_BACK:
            database.roll_back(backend)
            database.begin(backend)
            return [], False, "BEGIN"
        if text == NOT_DURABLE:
            backend.durable = False
            return [], False, "SET"
        if (rows := self._of_backends(text, parameters)) is not None:
            return rows, True, "SELECT"
        if "pubsub." not in text:
            text = _OWN.sub(rf"\1_{self._client}", text)
        found_rows, has_rows = database.execute(backend, text, parameters)
        return found_rows, has_rows, ""

    def _end(self, client: str, token: str, number: int, mark: str) -> None:
        """Commit, with an answer or without."""
        database, backend = self.database, self.backend
        endings = self.databases.endings
        ending = endings.get(self.host.name, "")
        if ending == KILLED_LATE and not any("effects" in text for text, _ in backend.log or ()):
            ending = ""  # It waits for the commit of a handler.
        if ending:
            del endings[self.host.name]
            self.databases.counters[f"commits with a lost answer: {ending}"] += 1
        if ending == "never":
            self._lose()
        if ending == KILLED_LATE:
            backend.late = client, token, number, mark
            database.leave(backend, self.databases.random.choice((0.3, 2.0, 4.0)))
            self.host.disk.end_process()
            raise Killed
        if ending == "late":
            backend.late = client, token, number, mark
            database.leave(backend, self.databases.random.choice((0.015, 0.1, 0.3, 1.0, 3.0)))
            self._lose(backend_stays=True)
        try:
            database.commit(backend, client, token, number, mark)
        except psycopg.Error:
            self.host.disk.troubled = True
            if not mark:
                database.roll_back(backend)
            raise
        if self.host.disk.kill_in is not None:
            self.host.disk.step()
        if ending == "done":
            self._lose()

    def _of_backends(self, text: str, parameters: tuple[Any, ...]) -> list[Any] | None:
        """Answer a statement about locks, backends and settings; None: it is about rows."""
        database = self.database
        if text == life._LOCK:
            holder = database.locks.setdefault(parameters[0], self.backend)
            return [(holder is self.backend,)]
        if text == life._HOLDER:
            found = database.locks.get(parameters[0])
            return [] if found is None else [(found.pid, found.since, None)]
        if text == _TERMINATE or text.startswith(_END_BACKEND):
            database.terminate([one for one in database.backends if one.pid == parameters[0]])
            return [(True,)]
        if text == life._HANDLER:
            self.backend.handles = parameters[0]
            return [(None,)]
        if text == life._END_HANDLERS:
            others = [one for one in database.backends if one is not self.backend]
            database.terminate([one for one in others if one.handles == parameters[0]])
            return []
        if text.startswith(_WAITS):
            return [(False,)]
        return [] if text.startswith(_IGNORED) else None

    @property
    def _client(self) -> str:
        return self.databases.client_of(self.host)


def _run_at_once(thread: Any) -> bool:
    """Run what would be a thread of a look: a step of a process takes no time in the world."""
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

    # What the product's modules use in place of the machine's

    def monotonic(self) -> float:
        """Return the time of the world, and what the step under way has slept."""
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

    # What applications do beside their clients

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
        return database.read(_OWN.sub(own, select)) if database.has(own) else []

    def process_ended(self, host: Host) -> None:
        """The process of a host is gone: what it knew is, and its connections are soon."""
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
            for module in (outcomes, life, beside):
                stack.enter_context(mock.patch.object(module, "time", clock))
            stack.enter_context(mock.patch.object(client_settling, "start_thread", _run_at_once))
            for module in (life, handler_database):
                stack.enter_context(mock.patch.object(module, "secrets", tokens))
            stack.enter_context(mock.patch.object(installing, "prepare", return_value=None))
            yield
