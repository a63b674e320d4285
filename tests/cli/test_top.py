"""`pubsub top` against a real cluster, in a pipe and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.standbys import pubsub
from tests.faults.cluster import Cluster, Process, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.run(1, 1)


def command(cluster: Cluster, *arguments: str) -> list[str]:
    return ["-m", "pubsub", "top", "--proxy", cluster.addresses[0], *arguments]


def run(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return pubsub(*command(cluster, *arguments)[2:])


def test_once_prints_one_look_with_rates(cluster: Cluster) -> None:
    done = run(cluster, "--once", "--json", "--sort", "backlog")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert [(row["id"], row["state"], row["puts"]) for row in found["servers"]] == [("s1", "up", 0.0)]
    assert [row["id"] for row in found["proxies"]] == ["p1"]
    table = run(cluster, "--once")
    assert (table.returncode, "put/s" in table.stdout) == (0, True)


def test_top_prints_one_json_line_for_each_look_until_interrupted(cluster: Cluster, tmp_path: Path) -> None:
    process = Process("top", tmp_path, command(cluster, "--json", "--every", "0.5")).start()
    try:
        lines = until(lambda: len(found := process.lines("{")) >= 3 and found, "three lines")
        assert all(json.loads(line)["servers"][0]["up"] for line in lines)
        process.running.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.errors.read_text() == ""
    finally:
        process.end()


def test_top_ends_in_silence_when_its_reader_is_gone(cluster: Cluster) -> None:
    whole = [sys.executable, *command(cluster, "--json", "--every", "0.5")]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize("end", ["interrupt", "closed"])
def test_top_fills_the_terminal_and_restores_it(cluster: Cluster, end: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, *command(cluster, "--every", "0.5")])
    seen = bytearray()
    while b"put/s" not in seen:
        seen += os.read(terminal, 65536)
    assert b"\x1b[?1049h" in seen  # The other screen.
    if end == "closed":
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGHUP
        return
    os.write(terminal, b"\x03")
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:
        pass  # Linux says so that nobody has the other end open.
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(status), b"\x1b[?1049l" in seen) == (130, True)


def test_a_key_changes_the_order_of_top_and_q_restores_the_terminal(cluster: Cluster) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
        os.execv(sys.executable, [sys.executable, *command(cluster, "--every", "3600")])
    before = termios.tcgetattr(terminal)[3]
    seen = bytearray()
    while b"q quit" not in seen:
        seen += os.read(terminal, 65536)
    assert b"by puts" in seen
    os.write(terminal, b"xb")  # An hour before the next look: the key alone draws it.
    while b"by backlog" not in seen:
        seen += os.read(terminal, 65536)
    os.write(terminal, b"q")
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:
        pass  # Linux says so that nobody has the other end open.
    _, status = os.waitpid(pid, 0)
    after = termios.tcgetattr(terminal)[3]
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(status), after) == (0, before)


def test_top_without_a_proxy_says_so_and_retries_except_with_once(cluster: Cluster, tmp_path: Path) -> None:
    words = ["-m", "pubsub", "top", "--proxy", "tcp://127.0.0.1:9"]
    done = subprocess.run([sys.executable, *words, "--once"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done.stderr
    process = Process("alone", tmp_path, [*words, "--json"]).start()
    try:
        lines = until(lambda: len(found := process.lines("{")) >= 2 and found, "two lines")
        assert "tcp://127.0.0.1:9" in json.loads(lines[0])["problem"]
    finally:
        process.end()
