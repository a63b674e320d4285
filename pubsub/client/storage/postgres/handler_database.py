"""Run the transaction of one handler on a connection of its own (see `handler_pool` and `beside`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import psycopg
from psycopg.pq import TransactionStatus

from pubsub.base import forks
from pubsub.client.core.changes import Change
from pubsub.client.storage.inherited import Inherited
from pubsub.client.storage.interface import Bindings, ErrorKind, Value
from pubsub.client.storage.postgres import errors
from pubsub.client.storage.postgres.connecting import StoreConnection
from pubsub.client.storage.postgres.handler_pool import HandlerPool
from pubsub.errors import AfterFork

_BEGIN: Final = "begin isolation level read committed read write; select set_config('pubsub.tx', '{}', true)"
_CHECK: Final = "set constraints all immediate"


class HandlerStore(Protocol):
    """The parts of the client's store for a handler's transaction."""

    path: str

    @property
    def handlers(self) -> HandlerPool:
        """The connections of handlers."""

    @property
    def in_handlers(self) -> set[HandlerDatabase]:
        """The open transactions."""

    def is_in_doubt(self, connection: StoreConnection) -> bool:
        """Return True if nobody knows yet if a commit on this connection has happened."""

    def end_beside(self, connection: StoreConnection, mark: str, work: Callable[[], None]) -> None:
        """Commit on this connection."""

    def apply_on(self, cursor: psycopg.Cursor[tuple[Any, ...]], changes: Iterable[Change]) -> None:
        """Apply changes by a cursor."""

    def query_on(
        self, cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, parameters: Sequence[Value]
    ) -> list[tuple[Any, ...]]:
        """Run a statement of the common subset by a cursor, and return its rows."""


class HandlerDatabase:
    """As `interface.HandlerDatabase`.

    Args:
        store: the client's store.
    """

    def __init__(self, store: HandlerStore) -> None:
        self._store, self.path = store, store.path
        self._taken: StoreConnection | None = None
        self._mark = ""
        self.begun = False

    @property
    def connection(self) -> StoreConnection:
        """The connection of psycopg."""
        assert self._taken is not None
        return self._taken

    @property
    def in_transaction(self) -> bool:
        """False if a statement ended the transaction, as far as the connection knows."""
        return not self.begun or self.connection.info.transaction_status is not TransactionStatus.IDLE

    @property
    def in_doubt(self) -> bool:
        """True if nobody knows yet if its commit has happened."""
        return self._taken is not None and self._store.is_in_doubt(self._taken)

    # Its life

    def begin(self) -> None:
        """Take a connection, and begin the transaction. Raises as `interface.HandlerDatabase.begin`."""
        while True:
            connection = self._store.handlers.take()
            fresh = connection.unused
            try:
                self._begin_on(connection)
            except psycopg.Error as error:
                self._give_back(connection)
                if connection.closed and not fresh:
                    continue  # The server was restarted since its last use. The next one may be a new connection.
                raise errors.translated(self.path, error, broken=True) from None
            except BaseException:
                self._give_back(connection)
                raise
            return

    def _begin_on(self, connection: StoreConnection) -> None:
        self._mark, connection.unused = secrets.token_hex(8), False
        connection.execute(_BEGIN.format(self._mark), prepare=False)
        self.began(connection)

    async def begin_awaited(self, seconds: float) -> Any:
        """Begin as `begin`, while other tasks run; return psycopg's `AsyncConnection`."""
        from pubsub.client.storage.postgres.async_connection import face_of, take  # noqa: PLC0415 - loads asyncio.

        while not self.begun:
            connection = await take(self._store.handlers, seconds)
            fresh = connection.unused
            try:
                face = await face_of(connection)
                if face is None:
                    connection.discard()
                    self._give_back(connection)
                    continue
                self._mark, connection.unused = secrets.token_hex(8), False
                await face.execute(_BEGIN.format(self._mark), prepare=False)
                self.began(connection)
            except psycopg.Error as error:
                self._give_back(connection)
                if connection.closed and not fresh:
                    continue
                raise errors.translated(self.path, error, broken=True) from None
            except BaseException:
                self._give_back(connection)
                raise
        return self.connection.face

    async def check_awaited(self) -> None:
        """Make the deferred checks, while other tasks run."""
        await self.connection.face.execute(_CHECK, prepare=False)

    def began(self, connection: StoreConnection) -> None:
        """Accept the beginning of the transaction."""
        connection.guarded = True
        self._taken, self.begun = connection, True
        self._store.in_handlers.add(self)

    def forked(self, error: AfterFork) -> None:
        """Abandon the connection in a child process; later uses raise `error`."""
        forks.keep(self._taken)
        self._taken = Inherited(error)  # type: ignore[assignment]

    def check(self) -> None:
        """Make the deferred checks."""
        self.connection.execute(_CHECK, prepare=False)

    def end(self, work: Callable[[], Iterable[Change]]) -> None:
        """Commit, with the changes that `work` returns. Raises as `ClientStore.end`."""
        connection = self.connection
        self._store.end_beside(
            connection, self._mark, lambda: self._store.apply_on(self.connection.own_cursor(), work())
        )
        self._over()

    def undo(self, error: BaseException) -> None:
        """Roll back, and raise an error of the database: as one of ours if it is no statement's."""
        if self._taken is None:
            return
        kind, broken = self.kind_of(error), self._taken.broken
        self._over()
        if isinstance(error, psycopg.Error):
            if kind is ErrorKind.DISK:
                raise errors.translated(self.path, error, broken=broken) from None
            raise error

    def _over(self) -> None:
        connection, self._taken, self.begun = self._taken, None, False
        self._store.in_handlers.discard(self)
        if connection is not None:
            self._give_back(connection)

    def _give_back(self, connection: StoreConnection) -> None:
        connection.guarded = False
        if connection.broken:
            self._store.handlers.lost(connection)
        if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                connection.execute("rollback", prepare=False)
        usable = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        if not usable:
            connection.discard()
        self._store.handlers.give_back(connection if usable else None)

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of this database, or of a StorageError; None for any other exception."""
        return errors.kind_of(error, broken=self._taken is not None and self._taken.broken)

    # Statements

    def execute(self, statement: str, bindings: Bindings = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement of the application, with parameters as psycopg has them."""
        return self.connection.execute(statement, bindings or None)

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement of the application once for each row of bindings."""
        cursor = self.connection.cursor()
        cursor.executemany(statement, rows)
        return cursor

    def query(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the common subset, and return its rows."""
        return self._store.query_on(self.connection.own_cursor(), statement, parameters)

    def prepare_files(self) -> None:
        """Do nothing: the table of files is there."""
