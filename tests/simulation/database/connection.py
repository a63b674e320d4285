"""One connection to a simulated database, in place of psycopg's, and its cursors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from pubsub.client.storage.postgres import (
    life,
)
from pubsub.client.storage.postgres.connecting import Place
from tests.simulation.database.engine import Backend, Database
from tests.simulation.disk import Killed

if TYPE_CHECKING:
    from tests.simulation.database.connecting import Databases
    from tests.simulation.world import Host

LINGERS = (0.0, 0.0, 0.05, 1.0)
"""Seconds after which a backend sees that its client is gone: a lost host tells nobody."""

_BEGIN = re.compile(r"begin[a-z ]*; select set_config\('pubsub\.tx', '([^']*)', true\)")
_END = re.compile(r"select pubsub\.step\('([^']*)', '([^']*)', (\d+), '([^']*)'\); commit")
_PUT = re.compile(r"with added as \((.*) returning 1\) select pubsub\.step\(%s, %s, %s, ''\) from added")
OWN_TABLE = re.compile(r"\b(seen|sent|effects)\b(?!\()")
_TERMINATE = "select pg_terminate_backend(%s)"
_WAITS = "select exists (select from pg_locks"
_END_BACKEND = "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s"
_IGNORED = ("set transaction ", "set local lock_timeout", "set constraints all immediate")


NOT_DURABLE = "set local synchronous_commit = off"
CRASHED = "crashed"
"""An ending: the database crashes just after the commit of a handler that has lowered its durability."""

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
            text = OWN_TABLE.sub(rf"\1_{self._client}", text)
        found_rows, has_rows = database.execute(backend, text, parameters)
        return found_rows, has_rows, ""

    def _end(self, client: str, token: str, number: int, mark: str) -> None:
        """Commit, with an answer or without."""
        database, backend = self.database, self.backend
        endings = self.databases.endings
        ending = endings.get(self.host.name, "")
        if ending == KILLED_LATE and not any("effects" in text for text, _ in backend.log or ()):
            ending = ""  # It waits for the commit of a handler.
        if ending == CRASHED and backend.durable:
            ending = ""  # It waits for a handler that has lowered the durability.
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
        if ending == CRASHED:
            database.crash()
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
