"""Keep the connections of handlers' transactions: a handler must not have the session's connection, nor wait for it.

There are as many connections as handlers have had transactions open at once, up to HANDLER_CONNECTIONS_MAX. A further
handler waits for one of them. Each connection has a shared advisory lock by the client's name, so that a later life, or
another member of a group, finds the backends that the life before has left behind (`life.end_handlers`).

The rule is docs/explanation/databases.md, DB10.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Lock
from typing import Final

import psycopg

from pubsub.base import forks
from pubsub.client.storage.postgres import life
from pubsub.client.storage.postgres.connecting import StoreConnection, connect, shown
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import StorageError

HANDLER_CONNECTIONS_MAX: Final = 8
"""Most connections of one client for the transactions of its handlers, beside the session's connection."""


class HandlerPool:
    """The connections for handlers of one client.

    Args:
        url: of the database.
        client: the client ID.
        seconds: longest wait for a connection that another handler has.
    """

    def __init__(self, url: DatabaseUrl, client: str, seconds: float) -> None:
        self._url, self._client, self._seconds = url, client, seconds
        self._lock: Final = Lock()
        self._idle: list[StoreConnection] = []
        self._waiting: deque[Future[StoreConnection | None]] = deque()
        self._open = 0
        self._lost: list[tuple[int, str]] = []
        self._closed = False

    def take(self) -> StoreConnection:
        """Return a connection, and wait for one if all are in use; `give_back` follows.

        Raises:
            StorageError: the database cannot be reached, or no connection became free in time.
        """
        asked = self.ask()
        try:
            found = asked.result(self._seconds)
        except BaseException as error:
            self.give_up(asked)
            if isinstance(error, TimeoutError | CancelledError):
                raise self.exhausted() from None
            raise
        return self.connect() if found is None else found

    def ask(self) -> Future[StoreConnection | None]:
        """Ask for a connection; the result None means that the caller opens one by `connect`."""
        asked: Future[StoreConnection | None] = Future()
        with self._lock:
            if self._idle:
                asked.set_result(self._idle.pop())
            elif self._open < HANDLER_CONNECTIONS_MAX:
                self._open += 1
                asked.set_result(None)
            else:
                self._waiting.append(asked)
        return asked

    def give_up(self, asked: Future[StoreConnection | None]) -> None:
        """Give a connection back that was asked for and is not used."""
        if not asked.cancel() and not asked.cancelled():
            self.give_back(asked.result())

    def exhausted(self) -> StorageError:
        """Build the error of a handler that got no connection."""
        return StorageError(
            shown(self._url, self._client),
            f"none of the {HANDLER_CONNECTIONS_MAX} connections for handlers became free in {self._seconds:g} s; "
            "lower concurrency, or let handlers wait for other things before their first statement",
        )

    def connect(self) -> StoreConnection:
        """Open a connection for a caller that may. Raises as `connecting.connect`."""
        connection: StoreConnection | None = None
        try:
            connection = connect(self._url, self._client)
            life.mark_handler(connection, self._client)
            while self._lost:
                life.end_backend(connection, *self._lost.pop())
        except BaseException as error:
            if connection is not None:
                connection.discard()
            self.give_back(None)
            if isinstance(error, psycopg.Error):
                raise StorageError(shown(self._url, self._client), "the connection of a handler is lost") from None
            raise
        return connection

    def lost(self, connection: StoreConnection) -> None:
        """End the backend of a lost connection as soon as there is another connection."""
        self._lost.append((connection.pid, connection.since))

    def give_back(self, connection: StoreConnection | None) -> None:
        """Give a connection back, or None for one that is closed."""
        with self._lock:
            while self._waiting and not self._closed:
                waiter = self._waiting.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(connection)
                    return
            if connection is None or self._closed:
                self._open -= 1
            else:
                self._idle.append(connection)
                return
        if connection is not None:
            connection.discard()

    def close(self) -> None:
        """Close the idle connections; one that a handler has is closed when the handler gives it back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            with suppress(RuntimeError):
                waiter.cancel()
        for connection in idle:
            connection.discard()

    def forked(self) -> None:
        """Leave the connections to the parent process."""
        for connection in self._idle:
            forks.keep(connection)
        self._idle, self._closed = [], True
