"""Read a client's state in a database without its lock, while another process has the client open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg

from pubsub.client.storage.interface import Value
from pubsub.client.storage.postgres import errors
from pubsub.client.storage.postgres.connecting import connect, shown
from pubsub.client.storage.postgres.statements import translate
from pubsub.client.storage.reading import Reading
from pubsub.config.databases import DatabaseUrl

CLIENTS_MAX: Final = 1_000
"""Most clients that are listed."""


class Looking(Reading):
    """A connection that only reads; a context manager.

    Args:
        client: the client ID; its state need not exist.
        url: of the database.

    Raises:
        ConfigurationError, StorageError: the database cannot be used.
    """

    def __init__(self, client: str, url: DatabaseUrl) -> None:
        self.path, self._client = shown(url, client), client
        self._connection = connect(url, client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextmanager
    def errors(self, *, loading: bool = False) -> Iterator[None]:
        """Turn errors of the database into ours."""
        try:
            yield
        except psycopg.Error as error:
            raise errors.translated(self.path, error, broken=self._connection.broken) from None

    def query(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the common subset, and return its rows."""
        with self.errors():
            return self._connection.execute(translate(statement, self._client), tuple(parameters)).fetchall()

    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts."""
        with self.errors():
            found = self._connection.execute(
                "select store, milliseconds, known, cuts from pubsub.state where client = %s", (self._client,)
            ).fetchone()
        return None if found is None else dict(zip(("store", "milliseconds", "known", "cuts"), found, strict=True))[key]

    def clients(self) -> list[str]:
        """Return the IDs of the clients in this database, the client's own first."""
        with self.errors():
            if self._connection.execute("select to_regclass('pubsub.state')").fetchone() == (None,):
                return []
            found = self._connection.execute(
                "select client from pubsub.state order by client <> %s, client limit %s", (self._client, CLIENTS_MAX)
            )
            return [name for (name,) in found]
