"""Turn errors of PostgreSQL about a client's state into errors of the client: one clear line, without a password.

The rule for a transaction that a statement ended is docs/explanation/databases.md, DB7.
"""

from __future__ import annotations

from typing import Final

import psycopg

from pubsub.client.storage.interface import ErrorKind
from pubsub.config.databases import without_password
from pubsub.errors import HandlerMisused, PubsubError, StorageError, StoreDamaged, StoreFull

ENDED: Final = "PB001"
"""SQLSTATE of `pubsub.step`: a statement of the application ended the transaction."""

OVER: Final = "PB002"
"""SQLSTATE of `pubsub.step`: another life has the client open, or the database has lost commits."""

_ABORTED: Final = "25P02"
_CONFLICTS: Final = frozenset({"40001", "40P01"})
_FULL: Final = frozenset({"53100"})
_DISK: Final = frozenset({"53100", "53200", "58000", "58030"})
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_READ_ONLY: Final = "25006"
_NO_RIGHT: Final = "42501"
_MISSING: Final = frozenset({"3F000", "42P01", "42703", "42883"})

MISUSED: Final = (
    "a statement ended the transaction, and its commit stays; let the with block or the handler's return end the "
    "transaction"
)


def line_of(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return without_password(str(error).strip().partition("\n")[0]) or type(error).__name__


def kind_of(error: BaseException, *, broken: bool) -> ErrorKind | None:
    """Return the kind of an error.

    Args:
        broken: the store's connection is lost. Otherwise an error of a connection is one of the application's own.
    """
    if isinstance(error, StorageError):
        return ErrorKind.DISK
    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate or ""
    if broken or state in _DISK or state in _DAMAGED:
        return ErrorKind.DISK
    if state in _CONFLICTS:
        return ErrorKind.CONFLICT
    return ErrorKind.CONSTRAINT if state.startswith("23") else ErrorKind.STATEMENT


def translated(path: str, error: psycopg.Error, *, broken: bool) -> PubsubError:
    """Return our error for one that a statement of the client itself raised."""
    state = error.sqlstate or ""
    if state == ENDED:
        return HandlerMisused(MISUSED)
    if state == _ABORTED:
        return HandlerMisused(
            "a statement of the transaction failed before, and PostgreSQL undoes all of a transaction then: run a "
            "statement that may fail within `with transaction.connection.transaction():`, which is a savepoint"
        )
    if state in _FULL:
        return StoreFull(path, "no space left on the disk of the database; free some and call again, nothing was sent")
    if state in _DAMAGED:
        return StoreDamaged(path, f"the database is damaged ({line_of(error)}); restore it")
    if state == _READ_ONLY:
        return StorageError(path, "the database takes no writes: it is a replica, or was made read-only")
    if state == _NO_RIGHT:
        return StorageError(path, f"the role lacks a right ({line_of(error)}); grant it on the schema pubsub")
    if state in _MISSING:
        return StorageError(path, f"the schema pubsub is not complete ({line_of(error)}); restore it")
    if broken or not state:
        return StorageError(path, f"the connection is lost ({line_of(error)}); the next call connects again")
    return StorageError(path, f"the database refused ({line_of(error)})")
