"""What a process uses of its machine: memory, open files, and the disk under its directory."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

FILES_MAX: Final = 65_536
"""Files that a process asks to be allowed to have open; each connection is one. The machine may allow fewer."""

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


def allow_connections() -> None:
    """Have this process be allowed as many open files as the machine lets it, up to FILES_MAX.

    Where they run out no further connection is accepted until one is closed; those that are open go on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def files_max() -> int:
    """Files that this process may have open now, at most FILES_MAX."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, FILES_MAX)
