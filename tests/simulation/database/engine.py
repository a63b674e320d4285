"""A PostgreSQL database of the simulated world: its rows, its backends, its locks, and `pubsub.step`.

The rows are in SQLite, in tables made from the product's `schema.sql`. A backend keeps the statements of its open
transaction. Only one backend at a time has its statements applied; the others' are applied again at their next one. So
a transaction sees its own changes, and what others have committed by then, as in READ COMMITTED.

A connection is lost in one of three ways, and its client cannot tell them apart: the last statements never arrived, or
they arrived and their answer is lost, or they arrive later, while the client connects again. A backend keeps its locks
until it is gone. A crash of the database ends all backends. Commits that nobody made durable are lost with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from random import Random
from typing import Any

import apsw
import psycopg

from pubsub.client.storage.postgres.errors import ENDED, OVER
from pubsub.client.storage.postgres.installing import SCHEMA

Statement = tuple[str, tuple[Any, ...]]

_TABLE = re.compile(r"create table pubsub\.(\w+) \((.*?)\n\)[^;]*;", re.DOTALL)
_NAMED = re.compile(r"\bpubsub\.(?=[a-z_]+\b)")


class Ended(psycopg.Error):
    """`pubsub.step` raised: a statement ended the transaction."""

    sqlstate = ENDED


class Over(psycopg.Error):
    """`pubsub.step` raised: another life, or commits are missing."""

    sqlstate = OVER


class Aborted(psycopg.Error):
    """A statement of the transaction failed before."""

    sqlstate = "25P02"


@cache
def in_sqlite(text: str) -> str:
    """Return a statement of PostgreSQL as SQLite has it."""
    return _NAMED.sub("pg_", text).replace("%s", "?").replace(" for update", "").replace("now()", "0")


@cache
def tables() -> tuple[str, ...]:
    """Return the statements that make the product's tables in SQLite."""
    found = []
    for name, columns in _TABLE.findall(SCHEMA.read_text()):
        plain = columns.replace(' collate "C"', "").replace("default now()", "default 0")
        found.append(f"create table pg_{name} ({plain})")
    return tuple(found)


class Backend:
    """The server's end of one connection.

    Attributes:
        log: statements of its open transaction, None: no transaction is open; aborted: one of them failed.
        mark: the setting `pubsub.tx`; durable: the setting `synchronous_commit` of the open transaction.
        late: its last statements, which arrive later: life, number and mark of the commit; None: it waits for none.
        handles: the client whose handlers it serves; "": it is a session's.
        gone_at: when it sees that its client is gone; None: it does not know.
    """

    def __init__(self, pid: int, since: str) -> None:
        self.pid, self.since = pid, since
        self.log: list[Statement] | None = None
        self.aborted = self.gone = False
        self.mark = self.handles = ""
        self.durable = True
        self.late: tuple[str, str, int, str] | None = None
        self.gone_at: float | None = None


class Database:
    """One database.

    Args:
        random: its own; now: the time.

    Attributes:
        place: system, timeline and OID; away_until: it takes no connections before.
        locks: the advisory locks, by client.
        crashes, late_commits: how often they happened.
    """

    def __init__(self, name: str, random: Random, now: Callable[[], float]) -> None:
        self.name, self.random, self.now = name, random, now
        self.place = (f"system of {name}", "00000001", "5")
        self.away_until = 0.0
        self.locks: dict[str, Backend] = {}
        self.backends: list[Backend] = []
        self.crashes = self.late_commits = 0
        self._numbers = count(100)
        self._rows = apsw.Connection(":memory:")
        self._applied: Backend | None = None
        self._undurable: bytes | None = None
        """The rows without the commits that a crash would lose; None: there are none."""
        for statement in tables():
            self._rows.execute(statement)
        self._rows.execute("insert into pg_format (number) values (1)")

    # Backends

    def connect(self) -> Backend:
        """Return a backend for a new connection."""
        number = next(self._numbers)
        backend = Backend(number, f"start {number}")
        self.backends.append(backend)
        return backend

    def advance(self) -> None:
        """Let everything happen that is due."""
        now = self.now()
        for backend in [one for one in self.backends if one.gone_at is not None and one.gone_at <= now]:
            self._leave(backend)

    def leave(self, backend: Backend, seconds: float) -> None:
        """The client of a backend is gone; it sees that after a time, and is gone then."""
        when = self.now() + seconds
        if not backend.gone:
            backend.gone_at = when if backend.gone_at is None else min(when, backend.gone_at)

    def _leave(self, backend: Backend) -> None:
        """A backend is gone. What it had received last may happen before."""
        late, backend.late = backend.late, None
        if late is not None and backend.log is not None:
            self.late_commits += 1
            with suppress(psycopg.Error):  # Nobody hears it.
                self.commit(backend, *late)
        self.roll_back(backend)
        backend.gone, backend.gone_at = True, None
        self.backends.remove(backend)
        for client in [client for client, holder in self.locks.items() if holder is backend]:
            del self.locks[client]

    def terminate(self, backends: list[Backend]) -> None:
        """Another backend ends these: they are gone soon, and their last statements happen before, or never."""
        for backend in backends:
            if backend.late is not None and self.random.random() < 0.5:
                backend.late = None
            self.leave(backend, 0.01)

    def crash(self) -> None:
        """The server ends, and starts again: without open transactions, and without commits that were not durable."""
        self.crashes += 1
        for backend in list(self.backends):
            if backend.late is not None and self.random.random() < 0.5:
                backend.late = None
            self._leave(backend)
        if self._undurable is not None:
            self.restore(self._undurable)

    # Transactions

    def begin(self, backend: Backend, mark: str = "") -> None:
        backend.log, backend.mark, backend.aborted, backend.durable = [], mark, False, True

    def execute(self, backend: Backend, text: str, parameters: Sequence[Any] = ()) -> tuple[list[Any], bool]:
        """Run a statement; return its rows, and True if it has some.

        Raises:
            psycopg.Error: it failed.
        """
        if backend.log is None:
            self._enter(None)
            return self._run(text, tuple(parameters))
        if backend.aborted:
            raise Aborted("current transaction is aborted")
        self._enter(backend)
        try:
            found = self._run(text, tuple(parameters))
        except psycopg.Error:
            backend.aborted = True
            raise
        backend.log.append((text, tuple(parameters)))
        return found

    def _run(self, text: str, parameters: tuple[Any, ...]) -> tuple[list[Any], bool]:
        try:
            cursor = self._rows.execute(in_sqlite(text), parameters)
            rows = cursor.fetchall()
        except apsw.ConstraintError as error:
            raise psycopg.errors.lookup("23505")(str(error)) from None
        return rows, bool(rows) or text.lstrip().startswith("select")

    def _enter(self, backend: Backend | None) -> None:
        """Have the statements of this backend applied, and of no other."""
        if self._applied is backend:
            return
        if self._applied is not None:
            self._rows.execute("rollback")
        self._applied = backend
        if backend is not None:
            self._rows.execute("begin")
            for text, parameters in backend.log or ():
                self._rows.execute(in_sqlite(text), parameters)

    def commit(self, backend: Backend, client: str = "", life: str = "", number: int = 0, mark: str = "") -> None:
        """Commit the transaction of a backend; the last statement before is `pubsub.step`, for a client.

        Raises:
            psycopg.Error: nothing of it happened.
        """
        before = None if backend.durable else self.image()
        try:
            if backend.aborted:
                raise Aborted("current transaction is aborted")
            self._enter(backend)
            if client:
                step(self, backend, client, life, number, mark)
        except psycopg.Error:
            backend.aborted = True
            raise
        self._rows.execute("commit")
        self._undurable = None if backend.durable else self._undurable or before
        self._applied = backend.log = None
        backend.mark = ""

    def roll_back(self, backend: Backend) -> None:
        if self._applied is backend:
            self._rows.execute("rollback")
            self._applied = None
        backend.log, backend.mark, backend.aborted = None, "", False

    # The state as others see it

    def update(self, text: str, parameters: tuple[Any, ...]) -> int:
        """Run a statement of `pubsub.step` within the applied transaction; return the number of its rows."""
        before = self._rows.total_changes()
        self._rows.execute(text, parameters)
        return self._rows.total_changes() - before

    def read(self, text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement on what is committed now, and return its rows."""
        self._enter(None)
        return self._rows.execute(in_sqlite(text), tuple(parameters)).fetchall()

    def has(self, table: str) -> bool:
        """Return True if there is such a table."""
        return bool(self.read("select 1 from sqlite_schema where name = ?", (table,)))

    def image(self) -> bytes:
        """Return all that is committed."""
        self._enter(None)
        return bytes(self._rows.serialize("main"))

    def restore(self, image: bytes) -> None:
        """Have this content from now on. No backend may be there."""
        self._enter(None)
        self._rows.deserialize("main", image)
        self._undurable = None

    def promote(self, image: bytes) -> None:
        """A replica with an older content takes over."""
        self.crash()
        self.restore(image)
        system, timeline, oid = self.place
        self.place = system, f"{int(timeline) + 1:08d}", oid


def step(database: Database, backend: Backend, client: str, life: str, number: int, mark: str) -> None:
    """Model the function `pubsub.step` of schema.sql, one statement for one.

    `tests/postgres/test_step.py` compares it with the function itself.
    """
    if mark and backend.mark != mark:
        raise Ended("a statement ended the transaction of the client")
    if not backend.durable:
        backend.durable = True
    found = database.update(
        "update pg_state set commits = ? where client = ? and life = ? and commits = ? - 1",
        (number, client, life, number),
    )
    if not found:
        raise Over("another life has the client open, or commits are missing")


def parts_of(url: str) -> Iterator[str]:
    """Yield host and database of a simulated URL."""
    host, _, database = url.removeprefix("postgresql://").partition("@db/")
    yield from (host, database)
