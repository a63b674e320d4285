"""Reports to systemd: that a process is ready, that its own loop turns, and that it stops."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.base.supervision import OFF, PARTS, Watchdog, notify
from pubsub.server.process import ServerProcess
from pubsub.web.connections import Limits
from pubsub.web.serving import HttpServer
from tests.proxy.peers import Running
from tests.server.stage import Stage


class Manager:
    """A service manager: reads what it is told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + address[1:] if address[0] == "@" else address)
        self.sock.settimeout(60)

    def environment(self, watchdog_us: int | None = None) -> dict[str, str]:
        named = {"NOTIFY_SOCKET": self.address}
        return named if watchdog_us is None else {**named, "WATCHDOG_USEC": str(watchdog_us)}

    def next(self) -> str:
        return self.sock.recv(4096).decode()

    def until(self, state: str) -> list[str]:
        """What it is told before a state."""
        before = []
        while (told := self.next()) != state:
            before.append(told)
        return before

    def told(self) -> list[str]:
        """All that it was told and has not read."""
        found = []
        self.sock.setblocking(False)
        while True:
            try:
                found.append(self.next())
            except BlockingIOError:
                self.sock.settimeout(60)
                return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "n") if request.param == "path" else f"@pubsub-test-{os.getpid()}")
    yield made
    made.sock.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


def test_a_state_arrives_at_a_path_and_at_an_abstract_socket(manager: Manager) -> None:
    notify("READY=1", manager.environment())
    assert manager.told() == ["READY=1"]


def test_a_process_without_a_manager_notifies_nobody_and_logs_a_lost_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        notify("READY=1", {})
        notify("READY=1", {"NOTIFY_SOCKET": "vsock:2:1234"})
        assert not caplog.records
        notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "did not get READY=1: No such file" in caplog.text


def test_a_turn_is_reported_three_times_in_the_time_of_the_watchdog(manager: Manager) -> None:
    watchdog = Watchdog(manager.environment(3_000_000))
    assert watchdog.wait_ms == 3_000 / PARTS
    for now in (10.0, 10.9, 11.0, 11.1, 30.0, 30.5, 31.0):
        watchdog.turned(now)
    assert manager.told() == ["WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}],
)
def test_a_watchdog_that_is_off_or_of_another_process_sends_nothing(
    manager: Manager, environment: dict[str, str]
) -> None:
    watchdog = Watchdog(manager.environment() | environment)
    assert watchdog.wait_ms > 1_000_000
    watchdog.turned(1e9)
    OFF.turned(1e9)
    OFF.stopping()
    assert manager.told() == []


class Stuck:
    """A loop's turn that hangs the fifth time, until it is let go."""

    def __init__(self, turn: Any) -> None:
        self._turn, self.turns = turn, 0
        self.hangs, self.go = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> None:
        self.turns += 1
        if self.turns == 5:
            self.hangs.set()
            assert self.go.wait(120)
        self._turn(*arguments)


def test_a_proxy_that_hangs_in_a_turn_falls_silent(tmp_path: Path, context: zmq.Context[Any], manager: Manager) -> None:
    running = Running(tmp_path / "p", context)
    process = running.process
    process.watchdog = Watchdog(manager.environment(1))
    stuck = process.turn = Stuck(process.turn)  # type: ignore[method-assign]
    running.start()
    assert stuck.hangs.wait(120)
    assert manager.told() == ["WATCHDOG=1"] * 5  # Of the turn that hangs, and of those before it.
    stuck.go.set()
    assert manager.next() == "WATCHDOG=1"
    running.stop()


def test_a_server_that_hangs_in_a_turn_falls_silent(tmp_path: Path, manager: Manager) -> None:
    process = ServerProcess(Stage.settings_of(tmp_path, proxies=("tcp://127.0.0.1:9",)))
    process.watchdog = Watchdog(manager.environment(1))
    process.start()
    stuck = process._turn = Stuck(process._turn)  # type: ignore[method-assign]
    thread = threading.Thread(target=process.run)
    thread.start()
    assert stuck.hangs.wait(120)
    assert manager.told() == ["WATCHDOG=1"] * 4  # Of the turns before the one that hangs.
    stuck.go.set()
    assert manager.next() == "WATCHDOG=1"
    process.stop()
    thread.join(120)
    process.close()


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody asks")


def test_a_server_of_http_reports_the_turns_of_its_event_loop(manager: Manager) -> None:
    async def serve() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = HttpServer(nothing, listening, Limits(9, 9999, 9.0), lambda *_: b"")
            assert server.watchdog is OFF
            server.watchdog = Watchdog(manager.environment(1))
            await server.start()
            while not (told := manager.told()):
                await asyncio.sleep(0)
            assert told == ["WATCHDOG=1"]  # While this runs the event loop turns no further.
            await server.stop()

    asyncio.run(serve())
    assert manager.until("STOPPING=1") == ["WATCHDOG=1"]
