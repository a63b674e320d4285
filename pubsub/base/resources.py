"""What a process uses of its machine: memory, and the disk under its directory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    return 0


def used(directory: Path) -> dict[str, int]:
    """What this process uses, for its report.

    Args:
        directory: where its state lives.

    Returns:
        `memory_bytes` (resident), and of the disk under the directory `disk_size_bytes`, `disk_free_bytes` (what this
        user may still write) and `disk_used_bytes`; what the system does not say is 0.
    """
    size = free = taken = 0
    with contextlib.suppress(OSError):
        disk = os.statvfs(directory)
        size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        taken = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return {
        "memory_bytes": resident_bytes(),
        "disk_size_bytes": size,
        "disk_free_bytes": free,
        "disk_used_bytes": taken,
    }
