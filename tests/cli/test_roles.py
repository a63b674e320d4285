"""Proxies and servers as started and stopped by a person: one clear line for a failed start, 0 for an ordered stop."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.forkserver import run

STOP_SECONDS = 10.0
"""Two, on a machine that is not busy."""


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "pubsub", *map(str, arguments)]


@contextlib.contextmanager
def running(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process and its ready line."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(60), "no word within 60 s"
        yield process, process.stdout.readline().decode()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*arguments: str | Path) -> tuple[int, str]:
    """The exit code and the one line of a process that cannot run."""
    done = run(*arguments)
    errors = done.stderr.decode()
    lines = [line for line in errors.splitlines() if line.startswith("pubsub: error: ")]
    assert "Traceback" not in errors
    assert len(lines) == 1, errors
    assert done.stdout == b""
    return done.returncode, lines[0]


def proxy(directory: Path, bind: str = "tcp://127.0.0.1:0") -> list[str | Path]:
    return ["proxy", "start", "--id", "p1", "--bind", bind, "--dir", directory]


def server(directory: Path, *options: str) -> list[str | Path]:
    return ["server", "start", "--id", "s1", "--proxy", "tcp://127.0.0.1:9", "--dir", directory, *options]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("role", [proxy, server])
def test_a_role_reports_its_readiness_and_stops_in_time(role, number: int, tmp_path: Path) -> None:
    with running(*role(tmp_path)) as (process, ready):
        assert ready.startswith(f"{role.__name__} ")
        assert " ready: " in ready
        assert "tcp://127.0.0.1:" in ready
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(120) == 0
        assert time.monotonic() - started < STOP_SECONDS


@pytest.mark.parametrize(("role", "flag"), [(proxy, "--bind"), (server, "--bind")])
def test_a_port_in_use_is_one_line(role, flag: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        code, line = refused(*role(tmp_path), flag, address)
    assert code == 8
    assert f"address {address} is in use by another process" in line


EVERYWHERE = {
    proxy: ["--bind", "tcp://0.0.0.0:0"],
    server: ["--bind", "tcp://0.0.0.0:0", "--advertise", "tcp://127.0.0.1:1"],
}


@pytest.mark.parametrize("role", [proxy, server])
def test_a_role_without_keys_listens_on_all_interfaces_only_with_insecure(role, tmp_path: Path) -> None:
    code, line = refused(*role(tmp_path), *EVERYWHERE[role])
    assert code == 8
    assert "would listen on tcp://0.0.0.0:0 without keys, for anyone who reaches it: pubsub keys new" in line
    assert line.endswith(", or --insecure")
    with running(*role(tmp_path), *EVERYWHERE[role], "--insecure") as (_, ready):
        assert " ready: " in ready


def test_status_names_a_proxy_that_accepts_anybody(tmp_path: Path) -> None:
    with running(*proxy(tmp_path), *EVERYWHERE[proxy], "--insecure") as (_, ready):
        address = ready.split(" clients ")[1].split(",")[0].replace("0.0.0.0", "127.0.0.1")
        done = subprocess.run(command("status", "--proxy", address), capture_output=True, text=True, check=False)
    assert "warning: proxy p1 accepts connections without a key at tcp://0.0.0.0:0 (--insecure)\n" in done.stdout


@pytest.mark.parametrize("role", [proxy, server])
def test_an_incomplete_set_of_keys_is_one_line_that_names_the_missing_part(role, tmp_path: Path) -> None:
    made = subprocess.run(
        command("keys", "new", role.__name__, "x", "--out", tmp_path / "key"), capture_output=True, check=False
    )
    assert made.returncode == 0
    code, line = refused(*role(tmp_path))  # The key lies where it looks by itself.
    assert code == 8
    assert "has a key, but no list of authorized keys: name the file by --authorized FILE" in line
    (tmp_path / "authorized").write_text("# nobody\n")
    code, line = refused(*role(tmp_path / "other"), "--authorized", tmp_path / "authorized")
    assert code == 8
    assert "has no key, but a list of authorized keys" in line


@pytest.mark.parametrize("role", [proxy, server])
def test_a_second_process_on_the_same_directory_is_one_line_and_harms_nothing(role, tmp_path: Path) -> None:
    with running(*role(tmp_path)) as (process, _):
        code, line = refused(*role(tmp_path))
        assert code == 9
        assert "in use by another process" in line
        assert process.poll() is None
    with running(*role(tmp_path)) as (_, ready):
        assert " ready: " in ready


@pytest.mark.parametrize("role", [proxy, server])
def test_an_impossible_directory_is_one_line(role, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = refused(*role(tmp_path / "file" / "below"))
    assert code in {7, 8}
    assert str(tmp_path / "file") in line


def test_a_directory_without_a_store_is_refused_in_one_line_and_unchanged(tmp_path: Path) -> None:
    with running(*server(tmp_path)) as (process, _):
        process.terminate()
        process.wait(120)
    (database,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != database:
            path.unlink()
    database.write_bytes(b"not a database at all" * 1000)
    code, line = refused(*server(tmp_path))
    assert code == 7
    assert str(tmp_path) in line
    assert database.read_bytes() == b"not a database at all" * 1000


@pytest.mark.parametrize("name", ["s1"])
def test_a_server_with_an_id_in_use_ends_with_one_line(name: str, tmp_path: Path) -> None:
    """It waits for the first to be silent, and gives up after a few livenesses."""
    hasty = ["--heartbeat-seconds", "0.1"]
    with running(*proxy(tmp_path / "p"), "--startup-wait-seconds", "0", *hasty) as (_, ready):
        address = next(word for word in ready.replace(",", " ").split() if "://" in word)
        options = ["server", "start", "--id", name, "--proxy", address, *hasty, "--dir"]
        with running(*options, tmp_path / "one"):
            for _ in range(5):  # Where no proxy answers within a second, on a busy machine, it says that it is ready.
                done = subprocess.run(
                    command(*options, tmp_path / "two"), capture_output=True, text=True, timeout=120, check=False
                )
                if not done.stdout:
                    break
    assert done.returncode == 8, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("pubsub: error: ")]
    assert len(lines) == 1
    assert name in lines[0]
    assert done.stdout == "", "it said that it is ready"
    assert f"server {name} is not ready and waits: " in done.stderr


def test_an_unwritable_directory_is_refused_with_its_name(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        directory = Path("/proc/none")  # Nobody may, not even root.
    else:
        directory = tmp_path / "closed"
        directory.mkdir(mode=0o500)
    code, line = refused(*server(directory))
    assert code in {7, 8}
    assert str(directory) in line
