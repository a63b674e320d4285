"""Make the tables of outgoing rows from the SQL files beside this module, and check that a database has them.

The rule is docs/explanation/outgoing.md, OR3.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pubsub.client.outgoing.failures import place_of, remedy, telling
from pubsub.client.storage.postgres import installing
from pubsub.errors import ConfigurationError
from pubsub.protocol import check_id

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

FORMAT: Final = 1
"""Format of the tables: the number of the last SQL file."""

WRITTEN: Final = "topic, key, headers, body, deliver_at, ttl"
"""Columns of `pubsub.outgoing` that writers fill; the others have defaults that a writer may not override."""

_INSTALLING: Final = 0x7075_6273_7562
"""Number of the advisory lock under which one process at a time makes the tables."""


def statements() -> str:
    """Return the SQL that makes the tables of outgoing rows, each format's part in order."""
    folder = files(__package__)
    return "\n".join([(folder / f"{number}.sql").read_text(encoding="utf-8") for number in range(1, FORMAT + 1)])


def all_statements() -> str:
    """Return the SQL that makes the tables of clients, and those of outgoing rows."""
    return f"{installing.SCHEMA.read_text(encoding='utf-8')}\n{statements()}"


def grants(writers: Sequence[str]) -> str:
    """Return the SQL that lets roles write rows, and nothing else: not read them, change them or delete them."""
    names = ", ".join(_quoted(role) for role in writers)
    return f"grant usage on schema pubsub to {names};\ngrant insert ({WRITTEN}) on pubsub.outgoing to {names};\n"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def install(connection: Connection, writers: Sequence[str] = ()) -> None:
    """Make the tables of clients and of outgoing rows, unless they are there, and let roles write rows.

    Raises:
        ConfigurationError: a writer's role does not exist, or the role of the connection may not grant the right.
        StorageError: the role of the connection may not make the schema, or the database failed.
    """
    with telling(connection):
        installing.prepare(connection, place_of(connection))
    with telling(connection), connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_INSTALLING,))
        connection.execute(statements().encode())
        if writers:
            connection.execute(grants(writers).encode())


def check(connection: Connection) -> None:
    """Check that the tables are there in the format of this release.

    Raises:
        ConfigurationError: they are not.
        StorageError: the database failed.
    """
    with telling(connection):
        row = connection.execute("select format from pubsub.relay").fetchone()
    found = 0 if row is None else row[0]
    if found < FORMAT:
        raise ConfigurationError(f"{place_of(connection)} has outgoing rows in format {found}; {remedy(connection)}")
    if found > FORMAT:
        reason = f"has outgoing rows in format {found} of a newer release; this one knows up to {FORMAT}: upgrade"
        raise ConfigurationError(f"{place_of(connection)} {reason}")


def claim(connection: Connection, wanted: str | None) -> str:
    """Return the client ID of the one relay of this schema, which the first relay decides.

    Two relays with different client IDs would each number a part of a topic's rows, in no order between them.

    Args:
        wanted: the ID that the caller asks for; None: the one of the database, or a new one.

    Raises:
        ConfigurationError: the relay has another ID, or there are no tables.
        StorageError: the database failed.
    """
    with telling(connection):
        first = check_id("client ID", wanted) if wanted is not None else f"relay-{secrets.token_hex(4)}"
        connection.execute("update pubsub.relay set name = %s where name is null", (first,))
        row = connection.execute("select name from pubsub.relay").fetchone()
    assert row is not None
    name = str(row[0])
    if wanted not in (None, name):
        reason = f"has the relay {name}, which may have messages to send; give --name {name}, or no name"
        raise ConfigurationError(f"{place_of(connection)} {reason}")
    return name
