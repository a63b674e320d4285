"""`pubsub up --detach` and `pubsub down`."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.cli import cluster_lock, down, main
from pubsub.cli.cluster_lock import Running, living, started
from tests.cli.standbys import pubsub


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory whose cluster is stopped, whatever the test did."""
    yield tmp_path / "c"
    assert not (tmp_path / "c").exists() or pubsub("down", "--dir", tmp_path / "c").returncode == 0


def test_up_detached_returns_when_the_cluster_runs_and_down_stops_it(place: Path) -> None:
    up = pubsub("up", "--dir", place, "--detach", "--keys", "--servers", "1", "--json")
    assert up.returncode == 0, up.stderr
    assert f"pubsub down --dir {place}" in up.stderr
    assert str(place / "up.log") in up.stderr
    facts = json.loads(up.stdout)
    asked = pubsub("status", "--json", "--proxies-file", place / "proxies", "--key", place / "client.key")
    (server,) = json.loads(asked.stdout)["servers"]
    assert server["answered"], "it is up at once"

    again = pubsub("up", "--dir", place, "--detach")
    assert again.returncode == 9
    assert len(again.stderr.splitlines()) == 1
    assert "is running already: up (pid" in again.stderr

    stopped = pubsub("down", "--dir", place, "--json")
    assert stopped.returncode == 0, stopped.stderr
    found = json.loads(stopped.stdout)["stopped"]
    assert {one["pid"] for one in facts["processes"]} < {one["pid"] for one in found}
    with (place / "running").open() as file:
        assert living(file) == []


def test_a_cluster_that_does_not_come_up_is_one_line_that_says_why_and_leaves_nothing_running(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place.mkdir()
        (place / "proxies").write_text(f"tcp://127.0.0.1:{taken.getsockname()[1]}\n")
        up = pubsub("up", "--dir", place, "--detach")
    assert up.returncode not in {0, 9}
    (line,) = up.stderr.splitlines()
    assert f"the cluster in {place} did not come up: proxy p1 did not start" in line
    assert str(place / "up.log") in line
    assert "address" in (place / "up.log").read_text().lower()
    assert pubsub("down", "--dir", place).stdout == f"no cluster is running in {place}\n"


def test_down_reports_an_idle_directory_and_refuses_a_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--dir", str(tmp_path / "none")]) == 8
    assert "no such directory" in capsys.readouterr().err
    assert main(["down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no cluster is running in {tmp_path}\n"


def test_a_process_with_a_reused_process_id_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(down, "WAIT_SECONDS", 0.1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lines = [{"role": role, "id": "", "pid": other.pid, "started": "1"} for role in ("up", "server")]
        (tmp_path / "running").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with (tmp_path / "running").open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert main(["down", "--dir", str(tmp_path)]) == 8
            assert living(held) == []
        assert "did not stop within" in capsys.readouterr().err
        assert other.poll() is None
        other.communicate(b"\n")
        assert other.returncode == 0


def test_a_line_of_an_earlier_release_counts_without_a_start_time(tmp_path: Path) -> None:
    running = Running(tmp_path)
    with (tmp_path / "running").open("a") as file:
        file.write(json.dumps({"role": "proxy", "id": "p1", "pid": os.getpid()}) + "\n")
    with (tmp_path / "running").open() as file:
        assert [one["role"] for one in living(file)] == ["up", "proxy"]
    running.close()
    assert started(os.getpid()) != ""
    assert started(2**30) == ""
    assert cluster_lock.title({"role": "up", "id": ""}) == "up"
