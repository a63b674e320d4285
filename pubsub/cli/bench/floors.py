"""The limit of the disk, measured in the same seconds as the figures that are compared with it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, Self

APPEND_BYTES: Final = 4096


def percentile(values: list[float], share: float) -> float:
    """Return the value that `share` of the values lie below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Disk:
    """The disk under a directory, where appends are measured; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "append"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)

    def append(self, secs: float) -> float:
        """Return the median microseconds of a 4 KiB append with fdatasync; no durable answer can be faster."""
        taken: list[float] = []
        data = bytes(APPEND_BYTES)
        file = os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        try:
            end = time.perf_counter() + secs
            while not taken or time.perf_counter() < end:
                begun = time.perf_counter()
                os.write(file, data)
                os.fdatasync(file)
                taken.append(time.perf_counter() - begun)
        finally:
            os.close(file)
        return percentile(taken, 0.5) * 1e6

    def latency(self, size: int, secs: float) -> float:
        """Return the least microseconds of a durable answer about `size` bytes."""
        return self.append(secs)
