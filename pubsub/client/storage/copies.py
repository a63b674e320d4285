"""Read the present state file of a client that another process has open, from a copy.

The process with the file keeps every other one out of it (`locking_mode=EXCLUSIVE`). So its file and its write-ahead
log are copied, and the copy is opened. The copy is the state after some commit if, during the copying, no checkpoint
wrote to the file and the log did not start again. Otherwise it is copied again. A partly copied frame of the log fails
its checksum, and counts as not written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import find_damage
from pubsub.base.wal import log_of
from pubsub.client.storage.disk_errors import open_here, storage_errors
from pubsub.client.storage.file_reading import FileReading
from pubsub.client.storage.tables import FORMAT_WAITING
from pubsub.errors import THIS_PROCESS, StorageError, StoreInUse, StoreNewer

SECONDS: Final = 10.0
"""Longest time for attempts to copy a file that is written to all the time."""

SETTLED_SECONDS: Final = 0.05
"""Least time since the last write to the file: within a tick of the clock a further change would not be seen."""

UNSOUND_MAX: Final = 3
"""Number of damaged copies, without any writes in between, after which the file itself counts as damaged."""

HEADER_BYTES: Final = 32
"""Bytes of a log's header, which change when the log starts again."""

_State = tuple[int, int, bytes]


class Copied(FileReading):
    """A copy of a state file, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with storage_errors(self.path):
            self.db = apsw.Connection(self.path)


@contextmanager
def copied(path: Path) -> Iterator[Copied]:
    """Read the state of a client while another process has it open.

    Args:
        path: the state file.

    Raises:
        StoreInUse: this process has it open; to close a file that is open twice releases the locks on it.
        StorageError: it cannot be copied, or was never at rest; StoreNewer and StoreDamaged: it cannot be read.
    """
    if os.path.realpath(path) in open_here:
        raise StoreInUse(str(path), THIS_PROCESS)
    with tempfile.TemporaryDirectory(prefix="pubsub-copy-") as folder:
        target = Path(folder) / path.name
        try:
            _copy(path, target)
        except OSError as error:
            raise StorageError(str(path), f"cannot be copied to be read: {error.strerror}") from None
        found = Copied(target)
        try:
            with storage_errors(str(path)):
                version = found.db.pragma("user_version")
                if version > FORMAT_WAITING:
                    raise StoreNewer(str(path), version, FORMAT_WAITING)
            found.path = str(path)
            yield found
        finally:
            found.db.close()


def _copy(path: Path, target: Path) -> None:
    """Copy file and log at a moment without writes to the file and without a restart of the log."""
    log, copy = log_of(path), log_of(target)
    deadline, unsound = time.monotonic() + SECONDS, 0
    while True:
        before = _state(path, log)
        shutil.copyfile(path, target)
        copy.unlink(missing_ok=True)
        if log.exists():
            shutil.copyfile(log, copy)
        settled = not 0 <= time.time_ns() - before[0] < SETTLED_SECONDS * 1e9
        if settled and _state(path, log) == before:
            unsound += 1
            if unsound == UNSOUND_MAX or not _damaged(target):
                return
        if time.monotonic() > deadline:
            raise StorageError(str(path), f"is written to all the time: no copy could be made within {SECONDS:g} s")
        time.sleep(SETTLED_SECONDS)


def _state(path: Path, log: Path) -> _State:
    """Return values that differ after a write to the file or a restart of its log."""
    found = path.stat()
    try:
        with log.open("rb") as stream:
            header = stream.read(HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return found.st_mtime_ns, found.st_size, header


def _damaged(path: Path) -> bool:
    """Return True if a copy is damaged."""
    try:
        db = apsw.Connection(str(path))
        try:
            return bool(find_damage(db, ("pubsub_dead_letters", "pubsub_letters_beside")))
        finally:
            db.close()
    except apsw.Error:
        return True
