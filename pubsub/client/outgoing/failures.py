"""Turn errors of PostgreSQL about outgoing rows into ours, with the next step in the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pubsub.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    import psycopg


def place_of(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> str:
    """Return the place of a database as text for errors; it contains no password."""
    info = connection.info
    where = f"{info.host}:{info.port}" if info.host else "?"
    return f"database {info.dbname} at {where}"


def remedy(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], more: str = "") -> str:
    """Return the next step for who misses the tables or a right; `more`: further options."""
    return f"run: pubsub relay --install --database URL{more}, as a role that may create a schema there"


@contextmanager
def telling(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """Turn errors of the database into ours, with the next step in the text.

    Raises:
        ConfigurationError: the tables are missing or of another format, or the role lacks a right.
        StorageError: any other error.
    """
    from psycopg import Error, errors  # noqa: PLC0415 - the package is optional.

    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn, errors.UndefinedFunction):
        raise ConfigurationError(f"{place_of(connection)} has no pubsub.outgoing; {remedy(connection)}") from None
    except errors.InsufficientPrivilege as error:
        user = connection.info.user
        reason = f"role {user} lacks a right there ({_line(error)}); {remedy(connection, f' --writers {user}')}"
        raise ConfigurationError(f"{place_of(connection)}: {reason}") from None
    except errors.UndefinedObject as error:
        raise ConfigurationError(f"{place_of(connection)}: {_line(error)}; create the role first") from None
    except Error as error:
        raise StorageError(place_of(connection), _line(error)) from error


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
