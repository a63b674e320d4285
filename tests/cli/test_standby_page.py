"""docs/standby.md, typed: every line of its set-up, its drill and its upgrade, on free ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub import Client

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.faults]

PAGE = Path(__file__).parents[2] / "docs/standby.md"


def lines(section: str) -> list[str]:
    """The commands of a section, in order."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    assert text
    return [line.strip().removeprefix("$ ") for line in text.splitlines() if line.strip().startswith("$ ")]


class Terminal:
    """A shell that what the page says is typed into, with other ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: dict[str, int] = {}
        pubsub = f'pubsub() {{ {shlex.quote(sys.executable)} -m pubsub "$@"; }}\n'
        self._shell = subprocess.Popen(
            ["bash"], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")},
        )  # fmt: skip
        self._write(pubsub)

    def _write(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def type(self, line: str) -> str:
        """What a line prints, once it is done; one that ends in & prints its ready line."""
        line = re.sub(r"tcp://127\.0\.0\.\d:\d+", lambda found: self._place(found[0]), line)
        behind = line.endswith("&")
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        if behind:
            words = line.removesuffix("&").removeprefix("pubsub ")
            self._write(f"( exec {shlex.quote(sys.executable)} -m pubsub {words} > ready 2>> log ) &\n")
        else:
            self._write(f"{{ {line}; }} 2>&1\necho; echo END $?\n")
        if behind:
            until(lambda: ready.exists() and "ready" in ready.read_text(), f"{line} says nothing")
            return ready.read_text()
        said: list[str] = []
        assert self._shell.stdout is not None
        while not (said and said[-1].startswith("END ")):
            said.append(self._shell.stdout.readline())
            assert said[-1], "the shell has ended"
        assert said.pop() == "END 0\n", said
        return "".join(said)

    def _place(self, address: str) -> str:
        if address not in self._ports:
            with socket.create_server((address.removeprefix("tcp://").partition(":")[0], 0)) as free:
                self._ports[address] = free.getsockname()[1]
        return f"{address.rpartition(':')[0]}:{self._ports[address]}"

    def row(self) -> dict[str, Any]:
        said = self.type(
            "pubsub status --json"
        ).splitlines()  # The shell tells of processes that were killed there too.
        rows = json.loads(next(line for line in said if line.startswith("{")))["standbys"]
        return rows[0] if rows else {"state": "", "primary": ""}

    def close(self) -> None:
        self._write("kill -9 $(jobs -p); wait; exit\n")
        self._shell.communicate(timeout=120)


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_the_set_up_is_six_lines_and_the_drill_and_the_upgrade_are_as_the_page_says(
    terminal: Terminal, tmp_path: Path
) -> None:
    setting_up, asking = lines("Set-up")[:-1], lines("Set-up")[-1]
    assert len(setting_up) == 6
    for line in setting_up:
        terminal.type(line)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    assert "in sync" in terminal.type(asking)
    proxies = (tmp_path / "proxies").read_text().split()
    with Client("alice", proxies=proxies, directory=tmp_path / "alice") as client:
        client.subscribe("orders")
        _drill(terminal, client)
        _upgrade(terminal, client)
        bodies = [b"%d" % number for number in range(1, 6)]
        taken: list[bytes] = []
        while len(taken) < len(bodies):
            taken += [message.body for message in client.get_many("orders", timeout=120)]
        assert taken == bodies


def _drill(terminal: Terminal, client: Client) -> None:
    kill, look, start, again = lines("The drill")
    before = terminal.row()["primary"]
    client.put("orders", b"1", timeout=120)
    terminal.type(kill)
    client.put("orders", b"2", timeout=120)
    assert "has had no standby in sync for" in terminal.type(look)
    assert terminal.row()["primary"] != before
    terminal.type(start)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    assert "in sync" in terminal.type(again)


def _upgrade(terminal: Terminal, client: Client) -> None:
    stop, start, switch, stop_other, start_other = lines("Upgrades")
    terminal.type(switch)  # The page begins with the first member as the primary.
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    before = terminal.row()["primary"]
    terminal.type(stop)
    client.put("orders", b"3", timeout=120)
    until(lambda: terminal.row()["state"] == "alone", "nobody misses it")
    terminal.type(start)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    assert terminal.row()["primary"] == before
    terminal.type(switch)
    client.put("orders", b"4", timeout=120)
    assert terminal.row()["primary"] != before
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    terminal.type(stop_other)
    client.put("orders", b"5", timeout=120)
    terminal.type(start_other)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")


def test_a_lost_disk_is_replaced_as_the_page_says(terminal: Terminal) -> None:
    for line in lines("Set-up")[:-1]:
        terminal.type(line)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    lost = terminal.row()["primary"]
    terminal.type(lines("The drill")[0])
    until(lambda: terminal.row()["state"] == "alone", "nobody misses it")
    remove, begin = lines("A disk that is lost")
    terminal.type(remove.replace("7c02…", lost) + " --yes")
    terminal.type(begin)
    until(lambda: terminal.row()["state"] == "in sync", "not in sync")
    assert lost not in terminal.row()["members"]
