"""Turn errors of SQLite about a client's state file into errors of the client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from pubsub.errors import THIS_PROCESS, StorageError, StoreDamaged, StoreFull, StoreInUse

open_here: Final[set[str]] = set()
"""Files that this process has open."""


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors on this file into ours.

    Raises:
        StoreFull: no space is left.
        StoreDamaged: the file is not a database, or is damaged.
        StoreInUse: another process has it open.
        StorageError: any other error of the disk.
    """
    try:
        yield
    except apsw.FullError:
        raise StoreFull(path, "no space left on the disk; free some and call again, nothing was sent") from None
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreDamaged(path, f"is damaged ({error}); restore it, or start with an empty directory") from None
    except (apsw.BusyError, apsw.LockedError):
        raise StoreInUse(path, _owner(path)) from None
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError) as error:
        raise StorageError(path, f"cannot be used: {error}") from None


@contextmanager
def row_errors(path: str) -> Iterator[None]:
    """Turn errors from reading an overwritten row into ours, since SQLite returns such a row as it is.

    Raises:
        StoreDamaged: there is such a row.
    """
    try:
        yield
    except (apsw.SQLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # A damaged column name or a damaged text causes different kinds of errors.
        reason = str(error).split("\n", 1)[0][:200]
        raise StoreDamaged(path, f"is damaged ({reason}); restore it, or start with an empty directory") from None


def sync_folder(folder: Path | None) -> None:
    """Fsync the directory, so that the file's name survives a power cut."""
    if folder is None:
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise StorageError(str(folder), f"cannot be fsynced: {error.strerror}") from None


def _owner(path: str) -> str:
    if os.path.realpath(path) in open_here:
        return THIS_PROCESS
    with suppress(OSError):
        return f"process {Path(path).with_suffix('.pid').read_text(encoding='ascii').strip()}"
    return "its ID is not known"
