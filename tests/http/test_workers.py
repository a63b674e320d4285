"""A web server with several workers: the second one ends with one line that asks for a name for each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pubsub.errors import THIS_PROCESS, StoreInUse
from pubsub.http.storage.journal import WORKERS
from tests.ports import free_port

APP = """
from pubsub.http import Receiver
receiver = Receiver("receiver")
@receiver.put("/orders")
def order(request, transaction):
    return "1"
"""
LINES_MAX = 60


def test_a_second_worker_of_a_receiver_says_in_one_line_that_each_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "uvicorn", "app:receiver", "--workers", "2", "--port", str(free_port())]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            seen: list[str] = []
            while len(seen) < LINES_MAX and (line := server.stdout.readline()):
                seen.append(line)
                if "in use by another process" in line:
                    break
        finally:
            server.terminate()
        rest = server.stdout.read()
    assert WORKERS in seen[-1], "".join(seen)
    assert "Traceback" not in "".join(seen) + rest


def test_the_remedy_is_for_another_process_only() -> None:
    error = StoreInUse("receiver/http.db", "process 7")
    error.remedy = WORKERS
    assert str(error).endswith(WORKERS)
    own = StoreInUse("receiver/http.db", THIS_PROCESS)
    own.remedy = WORKERS
    assert WORKERS not in str(own)
