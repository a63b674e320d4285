"""What a process uses of its machine."""

from __future__ import annotations

import os
from pathlib import Path

from pubsub.base.resources import used


def test_memory_and_the_disk_under_a_directory_are_told(tmp_path: Path) -> None:
    found = used(tmp_path)
    assert 1_000_000 < found["memory_bytes"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["disk_free_bytes"] <= found["disk_size_bytes"] - found["disk_used_bytes"]


def test_of_a_directory_that_is_not_there_nothing_is_known(tmp_path: Path) -> None:
    found = used(tmp_path / "gone")
    assert (found["disk_size_bytes"], found["disk_free_bytes"], found["disk_used_bytes"]) == (0, 0, 0)
