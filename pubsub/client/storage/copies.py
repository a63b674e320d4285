"""A client's state file as it is at this moment, although another process has it open: read from a copy.

The process that has the file keeps every other one out of it (`locking_mode=EXCLUSIVE`). Its file and its write-ahead
log are copied, and the copy is opened. The copy is the state after some commit if meanwhile no checkpoint wrote to the
file, and the log was not begun anew. Otherwise it is copied again. A frame of the log that was copied in part fails its
checksum, and counts as not written.
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
from pubsub.client.storage.reading import Reading
from pubsub.client.storage.tables import FORMAT
from pubsub.errors import THIS_PROCESS, StorageError, StoreInUse, StoreNewer

SECONDS: Final = 10.0
"""A file that is written to all the time is given up after so long."""

SETTLED_SECONDS: Final = 0.05
"""The file was not written to for so long when it is copied: within a tick of the clock no change would be seen."""

UNSOUND_MAX: Final = 3
"""Copies that are not sound although nothing was written meanwhile, after which the file itself counts as damaged."""

HEADER_BYTES: Final = 32
"""Of the header of a write-ahead log, which says when that was begun anew."""

_State = tuple[int, int, bytes]


class Copied(Reading):
    """A copy of a state file, opened to be read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with storage_errors(self.path):
            self.db = apsw.Connection(self.path)


@contextmanager
def copied(path: Path) -> Iterator[Copied]:
    """The state of a client as it is now, while another process has it.

    Args:
        path: of the state file.

    Raises:
        StoreInUse: this very process has it: to close a file that is open twice gives up the locks on it.
        StorageError: it cannot be copied, or never was at rest; StoreNewer, StoreDamaged say why it cannot be read.
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
                if version > FORMAT:
                    raise StoreNewer(str(path), version, FORMAT)
            found.path = str(path)
            yield found
        finally:
            found.db.close()


def _copy(path: Path, target: Path) -> None:
    """Copy file and log at a moment at which the one was not written to, nor the other begun anew."""
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
    """What differs where the file was written to, or its log begun anew."""
    found = path.stat()
    try:
        with log.open("rb") as stream:
            header = stream.read(HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return found.st_mtime_ns, found.st_size, header


def _damaged(path: Path) -> bool:
    """Whether what is read of a copy is not sound."""
    try:
        db = apsw.Connection(str(path))
        try:
            return bool(find_damage(db, ("pubsub_dead_letters", "pubsub_letters_beside")))
        finally:
            db.close()
    except apsw.Error:
        return True
