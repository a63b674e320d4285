"""The relay's second connection: it looks whether rows wait, and who holds the relay, outside of any transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub.client.outgoing import taking
from pubsub.client.outgoing.failures import telling
from pubsub.client.outgoing.tables import check, claim
from pubsub.client.storage.postgres import life
from pubsub.client.storage.postgres.connecting import StoreConnection, connect

if TYPE_CHECKING:
    from pubsub.config.databases import DatabaseUrl

_NAME: Final = "relay"


class Watch:
    """Looks at the tables of outgoing rows. A lost connection is opened again by the next call.

    Args:
        url: of the database.

    Raises:
        ConfigurationError: the URL or the surroundings cannot be used, or the tables are missing.
        StorageError: the database cannot be used.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._connection = connect(url, _NAME)
        try:
            check(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def _ready(self) -> StoreConnection:
        if self._connection.broken or self._connection.closed:
            self._connection = connect(self._url, _NAME)
        return self._connection

    def claim(self, wanted: str | None) -> str:
        """Return the client ID of the one relay of this schema. Raises as `tables.claim`."""
        return claim(self._ready(), wanted)

    def is_free(self, name: str) -> bool:
        """Return whether no connection has the relay's client open.

        Raises:
            StorageError: the database does not say.
        """
        connection = self._ready()
        with telling(connection):
            return life.holder(connection, name) is None

    def is_waiting(self, blocked: list[str]) -> bool:
        """Return whether a row waits on a topic that is not blocked. Raises as `is_free`."""
        connection = self._ready()
        with telling(connection):
            return taking.is_waiting(connection, blocked)

    def behind(self) -> tuple[int, float, int]:
        """Return the numbers of `taking.behind`. Raises as `is_free`."""
        connection = self._ready()
        with telling(connection):
            return taking.behind(connection)
