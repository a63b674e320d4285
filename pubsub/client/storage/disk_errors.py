"""What SQLite says of a client's state file, as the errors that a client raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from pubsub.errors import THIS_PROCESS, StorageError, StoreDamaged, StoreFull, StoreInUse

open_here: Final[set[str]] = set()
"""The files that this process has open."""


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors on this file into ours.

    Raises:
        StoreFull: no space is left.
        StoreDamaged: the file is not a database, or a damaged one.
        StoreInUse: another process has it.
        StorageError: anything else that the disk refuses.
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
    """Turn what reading a row ends in that was never written into our error: SQLite gives what stands there.

    Raises:
        StoreDamaged: there is such a row.
    """
    try:
        yield
    except (apsw.SQLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # A column's name may be another one, and a text be none.
        reason = str(error).split("\n", 1)[0][:200]
        raise StoreDamaged(path, f"is damaged ({reason}); restore it, or start with an empty directory") from None


def _owner(path: str) -> str:
    if os.path.realpath(path) in open_here:
        return THIS_PROCESS
    with suppress(OSError):
        return f"process {Path(path).with_suffix('.pid').read_text(encoding='ascii').strip()}"
    return "its ID is not known"
