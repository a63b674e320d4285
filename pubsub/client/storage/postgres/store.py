"""Keep a client's durable state in the user's own PostgreSQL. `life` and `outcomes` see to one life at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg

from pubsub.base import forks
from pubsub.client.core import changes as c
from pubsub.client.core.group_looks import LookedUp
from pubsub.client.core.numbers import and_then
from pubsub.client.storage.applying import APPLY
from pubsub.client.storage.inherited import Inherited
from pubsub.client.storage.interface import Bindings, ClientStore, Value
from pubsub.client.storage.postgres import life, settling
from pubsub.client.storage.postgres.beside import CommittingBeside
from pubsub.client.storage.postgres.bodies import Bodies
from pubsub.client.storage.postgres.connecting import StoreConnection
from pubsub.client.storage.postgres.handler_database import HandlerDatabase
from pubsub.client.storage.postgres.handler_pool import HandlerPool
from pubsub.client.storage.postgres.statements import translate
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import AfterFork, StoreDamaged

Cursor = psycopg.Cursor[tuple[Any, ...]]

_STATE: Final = "select store, milliseconds, known, cuts from pubsub.state where client = %s"
_KEYS: Final = ("store", "milliseconds", "known", "cuts")


class PostgresStore(CommittingBeside):
    """The open state of one client, as a `ClientStore`.

    Args:
        opened: gets the store before it is open, for a caller that an exception interrupts before it has the store.

    Attributes:
        handlers: the connections of handlers' transactions.
        in_handlers: the open ones of these transactions.

    The other arguments and the errors are those of `CommittingBeside`.
    """

    folder = None
    power_safe = True

    def __init__(
        self, client: str, url: DatabaseUrl, *, seconds: float, opened: list[ClientStore] | None = None
    ) -> None:
        self._texts: dict[str, str] = {}
        self._bodies = Bodies()
        self.handlers: Final = HandlerPool(url, client, seconds)
        self.in_handlers: Final[set[HandlerDatabase]] = set()
        if opened is not None:
            opened.append(self)
        super().__init__(client, url, seconds)

    def _forget(self) -> None:
        self._bodies.clear()

    @property
    def database(self) -> str:
        """Return the ID of the database, the same for each client in it."""
        return self._connection.place.identity

    def settle_other(self, client: str, store: str, topic: str, group: str, number: int) -> LookedUp | None:
        """End the life of a silent member, and return what it has done. Raises as `ClientStore.settle_other`."""
        key = client, store, topic, group, number
        return settling.settle_other(self._url, self._client, self.database, *key)

    def forked(self, error: AfterFork) -> None:
        """Abandon the connection in a child process; later uses raise `error`."""
        life.open_here.discard((self._connection.pid, self._connection.since))
        forks.keep(self._connection)
        forks.keep(self._cursor)
        self.handlers.forked()
        for one in tuple(self.in_handlers):
            one.forked(error)
        self._connection = self._cursor = Inherited(error)  # type: ignore[assignment]

    def close(self, *, clean: bool = True) -> None:
        """Release the client. Every commit is durable already, so `clean` changes nothing."""
        self.handlers.close()
        self._release()

    def handler_database(self) -> HandlerDatabase | None:
        """Return the database of a handler's transaction; as `ClientStore.handler_database`."""
        # A stricter isolation would not see the session's commits since the beginning, and each would be a conflict.
        return HandlerDatabase(self) if self._connection.read_committed else None

    # Reading

    def query(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the common subset, and return its rows."""
        with self.errors():
            self._ready()
            return self.query_on(self._cursor, statement, parameters)

    def query_on(self, cursor: Cursor, statement: str, parameters: Sequence[Value]) -> list[tuple[Any, ...]]:
        """Run a statement of the common subset by a cursor, and return its rows."""
        self._run(cursor, statement, tuple(parameters))
        return cursor.fetchall() if cursor.description is not None else []

    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts."""
        with self.errors():
            self._ready()
            row = self._cursor.execute(_STATE, (self._client,)).fetchone()
        if row is None:
            raise StoreDamaged(self.path, "the client is gone from pubsub.state; restore it")
        return row[_KEYS.index(key)]

    def body(self, counter: int) -> bytes:
        """Return the batch of an outbox row, which may be remembered."""
        return self._bodies.get(counter) or super().body(counter)

    # The application's statements

    @property
    def connection(self) -> StoreConnection:
        """The connection of psycopg."""
        return self._connection

    def execute(self, statement: str, bindings: Bindings = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement of the application, with parameters as psycopg has them."""
        return self._connection.execute(statement, bindings or None)

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement of the application once for each row of bindings."""
        cursor = self._connection.cursor()
        cursor.executemany(statement, rows)
        return cursor

    def prepare_files(self) -> None:
        """Do nothing: the table of files is there."""

    # Writing

    def _run(self, cursor: Cursor, statement: str, parameters: tuple[Value, ...] | list[tuple[Value, ...]]) -> None:
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = translate(statement, self._client)
        if isinstance(parameters, list):
            if parameters:
                cursor.executemany(text, [_storable(row) for row in parameters])
        else:
            cursor.execute(text, _storable(parameters))

    def apply(self, changes: Iterable[c.Change]) -> None:
        """Apply changes within an open transaction."""
        with self.errors():
            self.apply_on(self._cursor, changes)

    def apply_on(self, cursor: Cursor, changes: Iterable[c.Change]) -> None:
        """Apply changes within an open transaction, by a cursor of its connection."""
        for change in changes:
            for statement, parameters in APPLY[type(change)](change):
                self._run(cursor, statement, parameters)
            if isinstance(change, c.RowAdded):
                self._bodies.add(change.counter, change.body)
            elif isinstance(change, c.RowsRemoved):
                self._bodies.forget(change.counters)
            elif isinstance(change, c.Renewed):
                cursor.execute(
                    "update pubsub.state set store = %s, cuts = 0 where client = %s", (change.store, self._client)
                )

    def commit(self, changes: Iterable[c.Change], *, fsync: bool = False) -> bool:
        """Apply changes in one transaction, and return True: it is durable. Raises as `ClientStore.commit`."""
        changes = tuple(changes)
        if len(changes) == 1 and isinstance(changes[0], c.RowAdded):
            self._put(changes[0])
            return True
        self._enclosed(lambda: self.apply(changes))
        return True

    def _enclosed(self, work: Any) -> None:
        try:
            self._begin("begin isolation level read committed read write")
            work()
        except BaseException as error:
            self.undo(error)
            raise
        with self.errors():
            self.end()

    def _put(self, row: c.RowAdded) -> None:
        """Add one outbox row by a single statement, which is its own transaction: one round trip."""
        ((statement, parameters),) = APPLY[c.RowAdded](row)
        assert isinstance(parameters, tuple)
        text = self._texts.get("put")
        if text is None:
            added = translate(statement, self._client)
            text = f"with added as ({added} returning 1) select pubsub.step(%s, %s, %s, '') from added"  # noqa: S608
            self._texts["put"] = text
        self._ready()
        step = self._client, self._life.token, self._life.commits + 1
        values = _storable((*parameters, *step))
        with self.errors():
            self._decided(lambda: self._cursor.execute(text, values).fetchall())
        self._bodies.add(row.counter, row.body)

    def sync(self) -> None:
        """Make an empty commit: every commit is durable, and this one shows that the database takes them again."""
        self._enclosed(lambda: None)

    def save_milliseconds(self, milliseconds: int) -> None:
        """Make the number allocator's milliseconds durable. Raises as `ClientStore.save_milliseconds`."""
        known = ",".join(map(str, and_then(self.known_milliseconds(), milliseconds)))
        text = "update pubsub.state set milliseconds = %s, known = %s where client = %s"

        def work() -> None:
            with self.errors():
                self._cursor.execute(text, (milliseconds, known, self._client))

        self._enclosed(work)


def _storable(parameters: tuple[Value, ...]) -> tuple[Value, ...]:
    """Replace the character 0 of texts, which PostgreSQL does not store: the text of an error may have it."""
    for value in parameters:
        if isinstance(value, str) and "\0" in value:
            return tuple(one.replace("\0", "␀") if isinstance(one, str) else one for one in parameters)
    return parameters
