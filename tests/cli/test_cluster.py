from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.cli.cluster import Child, listening
from pubsub.config import ProxyAddress, read_proxies
from pubsub.errors import ConfigurationError
from pubsub.security.files import read_key_file
from pubsub.security.pairs import pair_of
from tests.faults import forkserver

STOP = "; to start it with other options, stop it first: pubsub down --dir "


class Up:
    """A running `pubsub up --json`."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "pubsub", "up", "--json", "--dir", str(directory), *options]
        # Whoever runs the tests under nohup has SIGHUP ignored, and so had the cluster.
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(60), "no word within 60 s"
        line = self.process.stdout.readline()
        self.facts: dict[str, Any] = json.loads(line) if line else {}

    def pid(self, name: str) -> int:
        return int(next(one["pid"] for one in self.facts["processes"] if one["id"] == name))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors.decode()

    def errors_until(self, word: bytes) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if word in line:
                return
        raise AssertionError(f"it ended without saying {word!r}")


@contextmanager
def up(directory: Path, *options: str) -> Iterator[Up]:
    running = Up(directory, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def closing(*numbers: int) -> Callable[[], None]:
    """For a child to do before its program starts."""

    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def until_heard(place: list[str], *servers: str) -> None:
    """Returns when the cluster says that these servers are there."""
    deadline = time.monotonic() + 30
    heard: set[str] = set()
    while not heard >= set(servers):
        assert time.monotonic() < deadline
        done = forkserver.run("status", "--wait", "1", "--json", *place)
        if done.returncode == 0:
            heard = {server["id"] for server in json.loads(done.stdout)["servers"] if server["answered"]}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_starts_completely_and_stops_soon(
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
        assert time.monotonic() - started < 10, "two seconds, on a machine that is not busy"
        assert code == 0, errors
        assert all(gone(one["pid"]) for one in cluster.facts["processes"])


@pytest.mark.slow
def test_a_cluster_starts_again_at_the_same_addresses(tmp_path: Path) -> None:
    with up(tmp_path, "--servers", "1") as cluster:
        before = [one.get("clients") for one in cluster.facts["processes"]]
    with up(tmp_path, "--servers", "1") as cluster:
        assert [one.get("clients") for one in cluster.facts["processes"]] == before


def test_a_cluster_with_keys_starts_again_with_the_same_keys(tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        names = ("proxies", "authorized", "client.key", "p1/key", "s1/key")
        return {name: (tmp_path / name).read_bytes() for name in names}

    with up(tmp_path, "--proxies", "1", "--servers", "1", "--keys") as cluster:
        assert cluster.facts["client_key_file"] == str(tmp_path / "client.key")
        assert cluster.facts["authorized"] == str(tmp_path / "authorized")
        (proxy,) = read_proxies(tmp_path / "proxies")
        assert proxy.keys == (pair_of(read_key_file(tmp_path / "p1/key")).public,)
        before = files()
    with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
        assert cluster.facts["client_key_file"] == str(tmp_path / "client.key")
        assert files() == before


def test_a_cluster_without_keys_can_get_keys(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1"):
        (before,) = read_proxies(tmp_path / "proxies")
        assert not before.keys
    with up(tmp_path, "--proxies", "1", "--servers", "1", "--keys"):
        (after,) = read_proxies(tmp_path / "proxies")
        assert (after.clients, after.servers) == (before.clients, before.servers)
        assert after.keys == (pair_of(read_key_file(tmp_path / "p1/key")).public,)


def test_a_process_that_dies_is_reported_and_the_exit_code_says_so(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
        os.kill(cluster.pid("s1"), signal.SIGKILL)
        cluster.errors_until(b"server s1 (pid %d) was ended by SIGKILL; the others continue" % cluster.pid("s1"))
        assert not gone(cluster.pid("p1"))
        code, _ = cluster.stop()
        assert code == 1


def test_a_dead_process_is_started_again_with_the_option_restart(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1", "--restart") as cluster:
        os.kill(cluster.pid("p1"), signal.SIGKILL)
        cluster.errors_until(b"was ended by SIGKILL; starting it again")
        deadline = time.monotonic() + 20
        while main(["status", "--wait", "0.5", "--json", "--proxies-file", str(tmp_path / "proxies")]) != 0:
            assert time.monotonic() < deadline


def test_a_second_cluster_in_the_same_directory_is_one_line_that_names_the_first(tmp_path: Path) -> None:
    with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
        second = Up(tmp_path, "--proxies", "1", "--servers", "1")
        code, errors = second.stop()
        assert code == 9
        named = [
            f"up (pid {cluster.process.pid})",
            *(f"{n} (pid {cluster.pid(n.split()[1])})" for n in ("proxy p1", "server s1")),
        ]
        said = f"{tmp_path}: this cluster is running already: {', '.join(named)}{STOP}{tmp_path}"
        assert errors == f"pubsub: error: {said}\n"
        assert not any(gone(one["pid"]) for one in cluster.facts["processes"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_every_signal_that_ends_up_ends_its_children(tmp_path: Path, number: int) -> None:
    # A shell starts what it runs in the background with some of them ignored, and that would be respected.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with up(tmp_path, "--proxies", "1", "--servers", "1") as cluster:
            until_heard(["--proxies-file", str(tmp_path / "proxies")], "s1")
            code, errors = cluster.stop(number)
            assert code == 0
            # What happens in every cluster asks nothing of anybody.
            assert "INFO proxy p1: server s1 is connected\n" in errors
            assert "WARNING" not in errors
            assert all(gone(one["pid"]) for one in cluster.facts["processes"])
    finally:
        signal.signal(number, before)


def test_nohup_is_respected(tmp_path: Path) -> None:
    command = [
        "nohup",
        sys.executable,
        "-m",
        "pubsub",
        "up",
        "--dir",
        str(tmp_path),
        "--proxies",
        "1",
        "--servers",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"proxies file"):
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        until_heard(["--proxies-file", str(tmp_path / "proxies")], "s1")
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(120) == 0


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.slow
def test_children_end_when_up_was_killed_and_the_next_up_starts(tmp_path: Path, stopped: bool) -> None:
    """Also where one of them was stopped (SIGSTOP) when `up` died, and goes on later."""
    with up(tmp_path, "--servers", "1") as cluster:
        pids = [one["pid"] for one in cluster.facts["processes"]]
        if stopped:
            os.kill(pids[0], signal.SIGSTOP)
        cluster.process.kill()
        cluster.process.wait()
        if stopped:
            second = Up(tmp_path, "--servers", "1")
            code, errors = second.stop()
            assert code == 9
            assert errors.endswith(f"this cluster is running already: proxy p1 (pid {pids[0]}){STOP}{tmp_path}\n")
            os.kill(pids[0], signal.SIGCONT)
        with up(tmp_path, "--servers", "1") as again:
            deadline = time.monotonic() + 20
            while not all(gone(pid) for pid in pids):  # Whoever inherits an orphan takes a moment to see that it ended.
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert [one.get("clients") for one in again.facts["processes"]] == [
                one.get("clients") for one in cluster.facts["processes"]
            ]


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_cluster_runs_with_closed_streams(tmp_path: Path, closed: tuple[int, ...]) -> None:
    command = [sys.executable, "-m", "pubsub", "up", "--dir", str(tmp_path), "--proxies", "1", "--servers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=closing(*closed))
    try:
        until_heard(["--proxies-file", str(tmp_path / "proxies")], "s1")
    finally:
        process.terminate()
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert b"Traceback" not in output + errors
    assert b"NoneType" not in output + errors


def test_roles_run_without_any_standard_stream(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    places = {"proxy": ["--bind", address, "--startup-wait-seconds", "0"], "server": ["--proxy", address]}
    running = []
    for role, place in places.items():
        command = [sys.executable, "-m", "pubsub", role, "start", "--id", role, "--dir", str(tmp_path / role), *place]
        running.append(subprocess.Popen(command, preexec_fn=closing(0, 1, 2)))
    try:
        until_heard(["--proxy", address], "server")
    finally:
        for process in running:
            process.terminate()
    assert [process.wait(120) for process in running] == [0, 0]


def test_a_server_names_the_proxy_that_it_cannot_reach(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"  # Bound, and nobody listens.
        command = ["server", "start", "--id", "s1", "--proxy", address, "--dir", str(tmp_path / "s1")]
        process = subprocess.Popen([sys.executable, "-m", "pubsub", *command], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert f"WARNING server s1: {address} cannot be reached: Connection refused" in process.stderr.readline()
        finally:
            process.terminate()
            process.communicate(timeout=120)


def test_a_cluster_without_keys_is_refused_if_an_access_list_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PUBSUB_AUTHORIZED", "elsewhere/authorized")
    assert main(["up", "--dir", str(tmp_path)]) == 8
    error = capsys.readouterr().err
    assert "start it with --keys, which makes an access list in that directory, or unset PUBSUB_AUTHORIZED" in error


def test_the_number_of_proxies_is_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "proxies").write_text("h:1\nh:2\n")
    assert main(["up", "--dir", str(tmp_path), "--proxies", "3"]) == 8
    assert "names 2, and the proxies of a cluster are fixed" in capsys.readouterr().err


def test_an_impossible_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["up", "--dir", str(tmp_path / "file" / "x")]) == 8
    assert "Not a directory" in capsys.readouterr().err


def test_addresses_are_read_from_the_ready_line() -> None:
    child = Child("proxy", "p1", [], None, "proxy p1 ready: clients tcp://h:1, servers tcp://h:2")  # type: ignore[arg-type]
    assert listening(child) == ProxyAddress("tcp://h:1", "tcp://h:2")
    child.ready = "nonsense"
    with pytest.raises(ConfigurationError, match="printed 'nonsense'"):
        listening(child)
