from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.cli.cluster import Child, _listening
from pubsub.config import ProxyAddress, read_proxies
from pubsub.errors import ConfigurationError

pytestmark = pytest.mark.timeout(90)


class Up:
    """A running `pubsub up --json`."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "pubsub", "up", "--json", "--dir", str(directory), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(30), "no word within 30 s"
        line = self.process.stdout.readline()
        self.facts: dict[str, Any] = json.loads(line) if line else {}

    def pid(self, name: str) -> int:
        return int(next(one["pid"] for one in self.facts["processes"] if one["id"] == name))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors.decode()

    def errors_until(self, word: bytes) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if word in line:
                return


@contextmanager
def up(directory: Path, *options: str) -> Iterator[Up]:
    running = Up(directory, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_comes_up_is_whole_and_goes_within_two_seconds(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with up(tmp_path) as cluster:
        roles = [(one["role"], one["id"]) for one in cluster.facts["processes"]]
        assert roles == [("proxy", "p1"), ("proxy", "p2"), ("server", "s1"), ("server", "s2")]
        listed = [proxy.clients for proxy in read_proxies(tmp_path / "proxies")]
        assert listed == [one["clients"] for one in cluster.facts["processes"][:2]]
        deadline = time.monotonic() + 20
        heard: list[bool] = []
        while time.monotonic() < deadline and heard != [True, True]:
            assert main(["status", "--json", "--proxies-file", str(tmp_path / "proxies")]) == 0
            heard = [server["answered"] for server in json.loads(capsys.readouterr().out)["servers"]]
        assert heard == [True, True]
        started = time.monotonic()
        code, errors = cluster.stop(number)
        assert time.monotonic() - started < 2
        assert code == 0, errors
        assert all(gone(one["pid"]) for one in cluster.facts["processes"])


def test_it_comes_up_again_at_the_same_addresses(tmp_path: Path) -> None:
    with up(tmp_path, "--servers", "1") as cluster:
        before = [one.get("clients") for one in cluster.facts["processes"]]
    with up(tmp_path, "--servers", "1") as cluster:
        assert [one.get("clients") for one in cluster.facts["processes"]] == before


def test_a_process_that_dies_is_reported_and_the_exit_code_says_so(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
        os.kill(cluster.pid("s1"), signal.SIGKILL)
        cluster.errors_until(b"server s1 (pid %d) was ended by SIGKILL; the others go on" % cluster.pid("s1"))
        assert not gone(cluster.pid("p1"))
        code, _ = cluster.stop()
        assert code == 1


def test_with_restart_a_process_that_died_is_started_again(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1", "--restart") as cluster:
        os.kill(cluster.pid("p1"), signal.SIGKILL)
        cluster.errors_until(b"was ended by SIGKILL; starting it again")
        deadline = time.monotonic() + 20
        while main(["status", "--wait", "0.5", "--json", "--proxies-file", str(tmp_path / "proxies")]) != 0:
            assert time.monotonic() < deadline


def test_a_second_cluster_in_the_same_directory_is_one_clear_line(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
        second = Up(tmp_path, "--proxies", "1", "--servers", "1")
        code, errors = second.stop()
        assert code == 8
        assert "in use by another process" in errors
        assert "proxy p1 did not start: ended with exit code" in errors
        assert "Traceback" not in errors
        assert not any(gone(one["pid"]) for one in cluster.facts["processes"])


def test_the_number_of_proxies_is_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "proxies").write_text("h:1\nh:2\n")
    assert main(["up", "--dir", str(tmp_path), "--proxies", "3"]) == 8
    assert "names 2, and the proxies of a cluster are fixed" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["up", "--dir", str(tmp_path / "file" / "x")]) == 8
    assert "Not a directory" in capsys.readouterr().err


def test_addresses_are_read_from_the_ready_line() -> None:
    child = Child("proxy", "p1", [], None, "proxy p1 ready: clients tcp://h:1, servers tcp://h:2")  # type: ignore[arg-type]
    assert _listening(child) == ProxyAddress("tcp://h:1", "tcp://h:2")
    child.ready = "nonsense"
    with pytest.raises(ConfigurationError, match="said 'nonsense'"):
        _listening(child)
