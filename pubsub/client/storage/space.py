"""Manage the space on a client's disk: the length of its write-ahead log, and a reserve for a full disk.

All commits stay in the log until a checkpoint moves them into the database; only then the log starts again. On a full
disk no commit succeeds, so nothing would ever move. The reserve is as large as the longest log on a small disk. When it
is released, the database can grow by its size, and from then on the log can start again.
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
    """Return the bytes that this process may still write to the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Space:
    """The space on the disk of a client's database.

    Args:
        database: its path.
        ample_bytes: longest log on a disk with ample space.
    """

    def __init__(self, database: Path, ample_bytes: int) -> None:
        self._folder, self._reserve = database.parent, database.with_suffix(".reserve")
        self._ample_bytes = ample_bytes

    def log_bytes_max(self) -> int:
        """Return the longest write-ahead log that the disk allows now."""
        try:
            free = free_bytes(self._folder)
        except OSError:
            return self._ample_bytes
        return self._ample_bytes if free >= AMPLE_BYTES else min(self._ample_bytes, RESERVE_BYTES)

    def make(self) -> bool:
        """Make the reserve if there is room for twice its size; return True if it is there."""
        try:
            if self._reserve.exists() and self._reserve.stat().st_size >= RESERVE_BYTES:
                return True  # A smaller one is incomplete: the process or the host ended while it was made.
            if free_bytes(self._folder) < 2 * RESERVE_BYTES:
                return False
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Release the reserve; return True if there was one."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True
