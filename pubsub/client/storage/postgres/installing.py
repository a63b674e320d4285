"""Make the schema `pubsub` in a database that has none, and check the format of one that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import psycopg

from pubsub.errors import StorageError, StoreNewer

FORMAT: Final = 1
SCHEMA: Final = Path(__file__).with_name("schema.sql")
"""The tables as plain SQL, for migration tools too."""

NOT_NUMBERED: Final = 0

_MADE: Final = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'pubsub' and c.relname = 'format'
"""
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('pubsub schema', 0))"


def prepare(connection: psycopg.Connection[Any], path: str) -> None:
    """Make the schema if there is none, and check its format.

    Raises:
        StorageError: the role may not make or use it; StoreNewer: a newer release made it.
    """
    try:
        found = _format(connection)
        if found is None:
            with connection.transaction():
                connection.execute(_LOCK)  # Two clients may begin at once.
                if _format(connection) is None:
                    connection.execute(SCHEMA.read_bytes())
            found = _format(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        reason = str(error).strip().partition("\n")[0]
        raise StorageError(
            path,
            f"the role may not make or use the schema pubsub ({reason}); let the owner of the database run the file "
            f"{SCHEMA.name} of the package once, and grant the rights (docs/how-to/your-own-database.md)",
        ) from None
    if found == NOT_NUMBERED:
        raise StorageError(path, "the schema pubsub has no format number; restore it, or remove it if it is not ours")
    if found is None or found > FORMAT:
        raise StoreNewer(path, found or 0, FORMAT)


def _format(connection: psycopg.Connection[Any]) -> int | None:
    # A function such as to_regclass would answer from the backend's cache, which the wait for the lock does not renew.
    if connection.execute(_MADE).fetchone() is None:
        return None
    row = connection.execute("select number from pubsub.format").fetchone()
    return NOT_NUMBERED if row is None else int(row[0])
