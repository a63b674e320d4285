"""Disk space reserved next to the store, for acknowledgements on a full disk.

The rule is docs/explanation/stores.md, S3.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Reserve(Protocol):
    """Space reserved so that acknowledgements can be written when the disk is full."""

    size: int

    def make(self) -> bool:
        """Reserve the space; return False if there is too little."""

    def release(self) -> None:
        """Free the space for the store."""


class ReserveFile:
    """A reserve that is a file next to the store.

    Args:
        size: in bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size

    def make(self) -> bool:
        try:
            with self.path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, self.size))
        except OSError:
            self.path.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> None:
        self.path.unlink(missing_ok=True)
