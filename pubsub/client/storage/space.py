"""Room on a client's disk: how long its write-ahead log may get, and a reserve for when the disk is full.

All that was committed stands in the log until a checkpoint moves it into the database; only then is the log written
over. Where the disk is full no commit succeeds, so nothing would ever move. The reserve is as large as the log may get
on a small disk: given back, it is what the database has to grow by, and from then on the log is written over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 1024 * 1024
"""Space that is kept beside a client's database."""

AMPLE_BYTES: Final = 128 * 1024 * 1024
"""Free space below which a disk counts as small."""


def free_bytes(folder: Path) -> int:
    """Bytes that this process may still write to the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Space:
    """The room on the disk of a client's database.

    Args:
        database: its path.
        ample_bytes: how long its log may get on a disk with ample space.
    """

    def __init__(self, database: Path, ample_bytes: int) -> None:
        self._folder, self._reserve = database.parent, database.with_suffix(".reserve")
        self._ample_bytes = ample_bytes

    def log_bytes_max(self) -> int:
        """How long the write-ahead log may get before it is moved, as the disk is now."""
        try:
            free = free_bytes(self._folder)
        except OSError:
            return self._ample_bytes
        return self._ample_bytes if free >= AMPLE_BYTES else min(self._ample_bytes, RESERVE_BYTES)

    def make(self) -> bool:
        """Take the reserve, where there is room for it and as much again; whether it is there."""
        try:
            if self._reserve.exists() and self._reserve.stat().st_size >= RESERVE_BYTES:
                return True  # One that is smaller was being made when the process, or the host, ended.
            if free_bytes(self._folder) < 2 * RESERVE_BYTES:
                return False
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Give the reserve back; whether there was one."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True
