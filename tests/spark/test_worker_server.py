"""The server that forks Spark's Python workers: a forked worker is as one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.cluster import until
from tests.spark import worker_server
from tests.spark.worker_client import PLACE

WORKER = """
import json, os, pyarrow, sys
facts = {"words": sys.argv[1:], "directory": os.getcwd(), "mark": os.environ.get("MARK"), "pid": os.getpid()}
facts |= {"parent": os.getppid(), "open": len(os.listdir("/proc/self/fd")), "path": sys.path[0]}
print(json.dumps(facts), flush=True)
print("to errors", file=sys.stderr)
sys.exit(int(sys.stdin.readline()))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    (tmp_path / "some_worker.py").write_text(WORKER)
    return worker_server.write_script(tmp_path / "python")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A server of its own for the test."""
    monkeypatch.setenv(PLACE, "")
    worker_server.start()
    started = worker_server._started.pop()
    yield started
    assert started.stdin is not None
    started.stdin.close()
    assert started.wait(60) == 0


def begin(script: Path, tmp_path: Path, **variables: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": f"{worker_server.ROOT}{os.pathsep}{tmp_path}", **variables}
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [script, "-m", "some_worker", "a b"], **pipes, text=True, cwd=tmp_path / "other", env=environment
    )


def facts(worker: subprocess.Popen[str]) -> dict[str, object]:
    import json

    assert worker.stdout is not None
    return dict(json.loads(worker.stdout.readline()))


def runs(pid: object) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(str(pid)), 0)
        return True
    return False


def test_a_forked_worker_has_the_streams_the_environment_and_the_exit_code_of_a_started_one(
    script: Path, tmp_path: Path, server: subprocess.Popen[bytes]
) -> None:
    expected = {"words": ["a b"], "directory": str(tmp_path / "other"), "mark": "é", "path": str(tmp_path / "other")}
    for place, parent in ((os.environ[PLACE], server.pid), ("", os.getpid())):
        worker = begin(script, tmp_path, MARK="é", **{PLACE: place})
        found = facts(worker)
        assert found.items() >= expected.items()
        assert found["parent"] == parent
        assert found["open"] == 4, "three streams, and the directory that is read"
        _, errors = worker.communicate("7\n")
        assert (worker.returncode, errors) == (7, "to errors\n")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_client_is_the_end_of_the_worker(
    script: Path, tmp_path: Path, server: subprocess.Popen[bytes], by: signal.Signals
) -> None:
    with begin(script, tmp_path) as worker:
        pid = facts(worker)["pid"]
        worker.send_signal(by)
        assert worker.wait(60) == (128 + by if by == signal.SIGTERM else -by)
        until(lambda: not runs(pid), "the worker has ended")


def test_a_worker_goes_on_without_its_server_and_the_next_one_is_started(
    script: Path, tmp_path: Path, server: subprocess.Popen[bytes]
) -> None:
    first = begin(script, tmp_path)
    pid = facts(first)["pid"]
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(60) == 0
    assert not Path(os.environ[PLACE]).parent.exists()
    assert runs(pid)
    first.communicate("0\n")
    until(lambda: not runs(pid), "the worker has ended")
    second = begin(script, tmp_path)
    assert facts(second)["parent"] == os.getpid()
    second.communicate("3\n")
    assert second.returncode == 3


def test_a_server_of_another_python_forks_nothing(
    tmp_path: Path, script: Path, server: subprocess.Popen[bytes]
) -> None:
    other = tmp_path / "another-python"
    other.write_text(script.read_text().replace(sys.executable, str(other_python(tmp_path))))
    other.chmod(0o755)
    worker = begin(other, tmp_path)
    assert facts(worker)["parent"] == os.getpid()
    worker.communicate("0\n")


def other_python(tmp_path: Path) -> Path:
    """This Python by another name."""
    place = tmp_path / "venv"
    place.symlink_to(Path(sys.executable).parents[1])
    return place / "bin" / Path(sys.executable).name


def test_what_is_no_order_is_refused(server: subprocess.Popen[bytes]) -> None:
    import socket

    def answered(send: Callable[[socket.socket], object]) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.environ[PLACE])
            send(client)
            with suppress(BrokenPipeError):
                client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                return client.recv(64)
            return b""

    streams = [0, 1, 2]
    for send in (
        lambda client: None,
        lambda client: client.sendall(b"\0\0\0\2{}"),
        lambda client: socket.send_fds(client, [b"\xff\xff\xff\xff"], streams),
        lambda client: socket.send_fds(client, [b"\0\0\0\x09{}"], streams),
        lambda client: socket.send_fds(client, [b"\0\0\0\2{}"], streams),
        lambda client: socket.send_fds(client, [b"\0\0\0\2[]"], streams),
        lambda client: socket.send_fds(client, [b"\0\0\0\2xx"], streams),
    ):
        assert answered(send) == b""
    assert server.poll() is None
