"""A proxy and a server with two members, each a process as started by a person, and their status."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from pubsub import Client
from tests.faults.cluster import Process
from tests.faults.forkserver import run
from tests.ports import free_port

FAST = ("--heartbeat-seconds", "0.2", "--standby-heartbeat-seconds", "0.05")
"""Heartbeats that make a failover a matter of a second."""


class Pair:
    """Processes by their names: p1, and members a and b of server s1."""

    def __init__(self, directory: Path, stack: ExitStack, host: str) -> None:
        self.directory, self._stack, self._host = directory, stack, host
        self.addresses: dict[str, str] = {}
        self.processes: dict[str, Process] = {}
        self._numbers = count(1)
        options = ["--bind", f"tcp://{host}:0", "--dir", directory / "p1", "--startup-wait-seconds", "0"]
        self.proxy = self._start("p1", "proxy", "start", "--id", "p1", *options, *FAST[:2])

    def member(self, directory: Path, server: str = "s1") -> list[str | Path]:
        """The command line of a member."""
        return ["server", "start", "--id", server, "--proxy", self.proxy, "--dir", directory, *FAST]

    def start(self, name: str, *options: str) -> None:
        """Start a member, in the directory of its name and always at the same address."""
        address = self.addresses.setdefault(name, f"tcp://{self._host}:{free_port()}")
        self._start(name, *self.member(self.directory / name), "--bind", address, *options)

    def _start(self, name: str, *arguments: str | Path) -> str:
        words = ["-m", "pubsub", *map(str, arguments)]
        process = Process(f"{name}-{next(self._numbers)}", self.directory, words).start()
        self._stack.callback(process.end)
        self.processes[name] = process
        process.wait_line("")
        return next(word for word in process.lines("")[0].replace(",", " ").split() if "://" in word)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a process, and wait for that."""
        self.processes[name].running.send_signal(number)
        self.processes[name].wait(120)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A member that does not run meanwhile."""
        self.end(name)
        try:
            yield
        finally:
            self.start(name)
            self.until("in sync")

    def status(self) -> dict[str, Any]:
        """What `pubsub status --json` says."""
        done = run("status", "--json", "--proxy", self.proxy)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def row(self) -> dict[str, Any]:
        """What it says of s1 with its standby."""
        rows = [row for row in self.status().get("standbys", ()) if row["server"] == "s1"]
        return rows[0] if rows else {"state": "", "primary": ""}

    def until(self, state: str, seconds: float = 120.0) -> dict[str, Any]:
        """Wait until the standby stands so."""
        deadline = time.monotonic() + seconds
        while (row := self.row())["state"] != state:
            assert time.monotonic() < deadline, f"{row} is not {state}"
        return row


@contextlib.contextmanager
def pair(directory: Path, host: str = "127.0.0.1") -> Iterator[Pair]:
    """Both members in sync, all on one host, and one message that waits for the client `late`."""
    with ExitStack() as stack:
        made = Pair(directory, stack, host)
        made.start("a")
        with Client("late", proxies=[made.proxy], directory=directory / "late") as client:
            client.subscribe("orders")
            client.put("orders", b"before", timeout=120)
        made.start("b", "--standby-of", made.addresses["a"])
        made.until("in sync")
        yield made


def pubsub_once_silent(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command of ours that is refused until a proxy has noticed that a primary is gone."""
    deadline = time.monotonic() + 60.0
    while True:
        done = pubsub(*arguments, stdin=stdin)
        if done.returncode != 15 or "has just ended" not in done.stderr or time.monotonic() > deadline:
            return done


def pubsub(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command of ours, to its end."""
    done = run(*arguments, stdin=stdin.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
