"""The resources that a process uses: memory, open files, and the disk under its directory."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

FILES_MAX: Final = 65_536
"""Limit of open files that a process requests. Each connection is one. The machine may allow fewer."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Return the memory of this process; 0 if the system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    return 0


def used(directory: Path) -> dict[str, int]:
    """Return the resources that this process uses, for its report.

    Args:
        directory: the state directory.

    Returns:
        `memory_bytes` (resident), and of the disk under the directory `disk_size_bytes`, `disk_free_bytes` (for this
        user) and `disk_used_bytes`; 0 for a value that the system does not report.
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


def allow_connections() -> None:
    """Raise this process's limit of open files as far as the machine allows, up to FILES_MAX.

    When files run out, no further connection is accepted until one is closed. Open connections continue.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def files_max() -> int:
    """Return this process's limit of open files, at most FILES_MAX."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, FILES_MAX)
