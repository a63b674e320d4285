"""Connect to the database of a client, and refuse surroundings in which its promises would not hold.

* A pooler gives the statements of one connection to several backends, so that locks and settings are another's.
* Without `fsync` or `full_page_writes` an acknowledged commit can vanish, or the database be damaged, after a crash.
* A replica takes no writes.

Every commit is synchronous: the session overrides the setting of the role, and `pubsub.step` that of a handler.

The rules are docs/explanation/databases.md, DB6 and DB9.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus
from psycopg.types.numeric import Int8BinaryDumper

from pubsub.client.storage.postgres.errors import line_of
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import ConfigurationError, HandlerMisused, StorageError

VERSION_MIN: Final = 13
CONNECT_SECONDS: Final = 10
SCHEMA: Final = "pubsub"

_DEFAULTS: Final[dict[str, str]] = {
    "connect_timeout": str(CONNECT_SECONDS),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "target_session_attrs": "read-write",
}
"""Parameters of libpq that the URL may set otherwise. A lost server is noticed within 25 s."""

_SESSION: Final = """
select set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('idle_in_transaction_session_timeout', '0', false),
    set_config('synchronous_commit', case when current_setting('synchronous_commit') = 'remote_apply'
        then 'remote_apply' else 'on' end, false)
"""
"""Settings of the session. A client on a lost host sends no FIN, and its backend would keep the lock for hours."""

_FACTS: Final = """
select pg_backend_pid(), pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
    current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
    (select system_identifier::text from pg_control_system()),
    case when pg_is_in_recovery() then '' else left(pg_walfile_name(pg_current_wal_lsn()), 8) end,
    (select oid::text from pg_database where datname = current_database()),
    (select backend_start::text from pg_stat_activity where pid = pg_backend_pid()),
    current_setting('default_transaction_isolation') = 'read committed'
"""


class Place(NamedTuple):
    """The cluster and database of a connection. After a restore of another copy, or a failover, it differs."""

    system: str
    timeline: str
    database: str

    @property
    def identity(self) -> str:
        """Return an ID of the schema with the clients' tables, the same for each client in it."""
        text = f"{self.system}/{self.database}/{SCHEMA}"
        return sha256(text.encode("utf-8")).hexdigest()[:16]


class StoreConnection(psycopg.Connection[tuple[Any, ...]]):
    """The connection of a client. While it is `guarded`, only the client ends its transaction.

    Attributes:
        guarded: a transaction of the client is open on it.
        pid, since: its backend at the server.
        place: cluster and database.
        unused: no handler has had it.
        face: its awaited face, for handlers of an event loop (`async_connection`).
        read_committed: that is the isolation by default; a stricter one sees no commit of another connection.
    """

    guarded: bool = False
    pid: int = 0
    since: str = ""
    place: Place = Place("", "", "")
    read_committed: bool = True
    unused: bool = True
    face: Any = None
    _own_cursor: psycopg.Cursor[tuple[Any, ...]] | None = None

    def own_cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        """Return the cursor for the client's own statements: binary, with all integers as PostgreSQL's bigint."""
        if self._own_cursor is None:
            self._own_cursor = self.cursor(binary=True)
            self._own_cursor.adapters.register_dumper(int, Int8BinaryDumper)
        return self._own_cursor

    @property
    def broken(self) -> bool:
        """True if the connection is lost, also if psycopg has left it within a pipeline: it takes no statement then.

        `executemany` is a pipeline. If its backend ends meanwhile, psycopg may see the error before the end of the
        connection. It cannot leave the pipeline then, and would refuse every later statement on its own.
        """
        if super().broken:
            return True
        return not self.closed and self._pipeline is None and self.pgconn.pipeline_status != PipelineStatus.OFF

    def commit(self) -> None:
        """Commit; refused in a transaction of the client."""
        self._refuse("commit")
        super().commit()

    def rollback(self) -> None:
        """Roll back; refused in a transaction of the client."""
        self._refuse("rollback")
        super().rollback()

    def close(self) -> None:
        """Close; refused in a transaction of the client."""
        self._refuse("close")
        super().close()

    def discard(self) -> None:
        """Close for good, also within a transaction."""
        self.guarded = False
        with suppress(psycopg.Error):
            super().close()

    def _refuse(self, method: str) -> None:
        if self.guarded and not self.broken:
            raise HandlerMisused(
                f"connection.{method}() is not for a transaction of the client: let the with block or the handler's "
                "return end it; an exception rolls back"
            )


def shown(url: DatabaseUrl, client: str) -> str:
    """Return the place of a client's state as text for errors, without a password."""
    return f"{url} (client {client})"


def connect(url: DatabaseUrl, client: str) -> StoreConnection:
    """Connect, and check the surroundings.

    Raises:
        ConfigurationError: the URL cannot be read, or the surroundings break the promises of a client.
        StorageError: the database cannot be reached, or takes no writes.
    """
    path = shown(url, client)
    connection = _connected(url, client, path)
    try:
        _check(connection, path)
    except psycopg.Error as error:
        connection.close()
        raise StorageError(path, f"cannot be used: {line_of(error)}") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(url: DatabaseUrl, client: str, path: str) -> StoreConnection:
    try:
        given = conninfo_to_dict(url.full)
    except psycopg.Error:  # Its text may quote the password.
        raise ConfigurationError(f"{path}: the URL of the database cannot be read; check its parameters") from None
    parameters: dict[str, Any] = {"application_name": f"pubsub client {client}"[:63], **_DEFAULTS, **given}
    try:
        return StoreConnection.connect(**parameters, client_encoding="utf-8", autocommit=True)
    except psycopg.Error as error:
        reason = line_of(error)
        if "read-only" in reason:
            raise StorageError(path, "the database takes no writes: it is a replica, or was made read-only") from None
        raise StorageError(path, f"cannot be reached: {reason}") from None


def _check(connection: StoreConnection, path: str) -> None:
    if connection.info.server_version < VERSION_MIN * 10_000:
        found = connection.info.server_version // 10_000
        raise ConfigurationError(f"{path}: PostgreSQL {VERSION_MIN} or later is needed; this is {found}")
    connection.execute(_SESSION)
    row = connection.execute(_FACTS).fetchone()
    assert row is not None
    pid, read_only, encoding, fsync, full_pages, system, timeline, database, since, read_committed = row
    if pid != connection.info.backend_pid:
        raise ConfigurationError(
            f"{path}: a pooler such as PgBouncer is between the client and PostgreSQL, and would give its statements "
            "to several sessions; name PostgreSQL's own host and port"
        )
    if read_only:
        raise StorageError(path, "the database takes no writes: it is a replica, or was made read-only")
    if encoding != "UTF8":
        raise ConfigurationError(f"{path}: the database has the encoding {encoding}; UTF8 is needed")
    for name, value in (("fsync", fsync), ("full_page_writes", full_pages)):
        if value == "off":
            raise ConfigurationError(
                f"{path}: PostgreSQL runs with {name}=off, so a crash can lose acknowledged commits; set it to on"
            )
    connection.pid, connection.since, connection.place = pid, since, Place(system, timeline, database)
    connection.read_committed = read_committed
