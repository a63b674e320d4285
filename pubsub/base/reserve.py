"""Space that is kept beside the store, for acknowledgements when the disk is full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Reserve(Protocol):
    """Space that is kept so that acknowledgements can be written when the disk is full."""

    size: int

    def make(self) -> bool:
        """Take the space; False where there is none."""

    def release(self) -> None:
        """Give it to the store."""


class ReserveFile:
    """A reserve that is a file beside the store.

    Args:
        path: where.
        size: in bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size

    def make(self) -> bool:
        """Take the space; False where there is none."""
        try:
            with self.path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, self.size))
        except OSError:
            self.path.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> None:
        """Give it to the store."""
        self.path.unlink(missing_ok=True)
