"""The use of the machine by a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pubsub.base.resources import used


def test_memory_and_the_disk_under_a_directory_are_reported(tmp_path: Path) -> None:
    found = used(tmp_path)
    assert 1_000_000 < found["memory_bytes"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["disk_free_bytes"] <= found["disk_size_bytes"] - found["disk_used_bytes"]


def test_a_missing_directory_has_figures_of_zero(tmp_path: Path) -> None:
    found = used(tmp_path / "gone")
    assert (found["disk_size_bytes"], found["disk_free_bytes"], found["disk_used_bytes"]) == (0, 0, 0)


def test_a_process_may_open_as_many_files_as_the_machine_allows() -> None:
    code = (
        "import resource as r; from pubsub.base import resources as s\n"
        "soft, hard = r.getrlimit(r.RLIMIT_NOFILE); r.setrlimit(r.RLIMIT_NOFILE, (64, hard)); s.allow_connections()\n"
        "now, _ = r.getrlimit(r.RLIMIT_NOFILE)\n"
        "assert now == (s.FILES_MAX if hard == r.RLIM_INFINITY else min(hard, s.FILES_MAX)), now"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
