"""The commands that serve HTTP may open as many files as the machine allows, under any shell limit."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.cluster import until

pytestmark = pytest.mark.slow

SERVE = {
    "http": ("receiving at", ["http", "serve", "data", "--bind", "127.0.0.1:0"]),
    "gateway": (
        "gateway ready",
        ["gateway", "start", "--dir", "data", "--bind", "127.0.0.1:0", "--proxy", "tcp://127.0.0.1:9"],
    ),
}


@pytest.mark.parametrize("command", SERVE)
def test_the_soft_limit_of_files_is_raised_to_the_hard_one(command: str, tmp_path: Path) -> None:
    ready, words = SERVE[command]
    root = Path(__file__).parents[2]
    low = ["bash", "-c", 'ulimit -Sn 256 && ulimit -Hn 1000 && exec "$@"', "-", sys.executable, "-m", "pubsub"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen([*low, *words], cwd=tmp_path, stdout=file, stderr=file, env=environment)
    try:
        until(lambda: ready in out.read_text() or process.poll() is not None, "it listens")
        assert process.poll() is None, out.read_text()
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1000, 1000)
        process.terminate()
        assert process.wait(30) in {0, -15}, out.read_text()
    finally:
        process.kill()
        process.wait()
