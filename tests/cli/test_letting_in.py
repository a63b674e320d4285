"""Keys as a newcomer sets them up: every line is typed into a shell, on a machine where nothing was before."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


class Machine:
    """A user's own: an empty home, and the command on the path."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        binaries = home / "bin"
        binaries.mkdir()
        (binaries / "pubsub").write_text(f'#!/bin/sh\nexec {sys.executable} -m pubsub "$@"\n')
        (binaries / "pubsub").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PUBSUB_", "XDG_"))}
        self.environment = {
            **kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": f"{binaries}{os.pathsep}{kept['PATH']}",
        }  # fmt: skip
        self._running: list[subprocess.Popen[str]] = []

    def types(self, line: str) -> str:
        """What a command prints, once it has done what it was asked for."""
        code, out, err = self.tries(line)
        assert code == 0, f"{line}\n{err}"
        return out

    def tries(self, line: str) -> tuple[int, str, str]:
        """The exit code of a command, and what it prints."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def exports(self, line: str) -> None:
        """`export NAME=value …`, for all that is typed from here on."""
        said = self.types(f"{line.strip()}; env -0")
        self.environment = dict(word.split("=", 1) for word in said.split("\0") if "=" in word)

    def leaves_running(self, line: str, until: str) -> list[str]:
        """The lines of a command that goes on, up to the one that begins so."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.home, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        self._running.append(process)
        assert process.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith(until):
            lines.append(process.stdout.readline())
            assert lines[-1], f"{line} ended: {process.wait()}"
        return lines

    def ends(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """The operator's and the newcomer's."""
    both = Machine(tmp_path / "operator"), Machine(tmp_path / "newcomer")
    yield both
    for machine in both:
        machine.ends()


def block(page: str, word: str) -> list[str]:
    """The lines that a page has a user type, in the block which holds a word."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [text for text in fenced if word in text]
    return [re.sub(r"\s{2,}#.*", "", line) for line in re.findall(r"^\$ (.*)$", found, re.MULTILINE)]


@pytest.mark.slow
def test_two_commands_authorize_a_new_client(machines: tuple[Machine, Machine]) -> None:
    operator, newcomer = machines
    said = operator.leaves_running("pubsub up --dir cluster --proxies 1 --servers 1 --keys", "proxies file:")
    (line,) = [line for line in said if line.startswith("keys: ")]
    operator.exports(line.removeprefix("keys: "))
    operator.exports("export PUBSUB_PROXIES_FILE=cluster/proxies")
    operator.types("pubsub client boss subscribe orders")
    # The newcomer has been given one file, which holds nothing secret.
    newcomer.exports(f"export PUBSUB_PROXIES_FILE={operator.home}/cluster/proxies")
    assert "pubsub keys new client carol" in expect(8, newcomer.tries("echo 1 | pubsub client carol put orders -"))

    make, authorize = block("docs/commands.md", "keys new client carol")
    accepted = newcomer.types(make).strip()
    assert re.fullmatch(r"client carol pk_[\w-]{43}", accepted)
    refused = expect(21, newcomer.tries("echo 1 | pubsub client carol put orders -"))
    assert f"pubsub keys authorize {accepted}" in refused
    operator.types(re.sub(r"client carol pk_[\w-]{43}", accepted, authorize))

    # The operator's command has seen the cluster follow.
    newcomer.types("pubsub client carol flush")
    assert operator.types("pubsub client boss get orders --wait 20") == "1\n"
    assert "client carol may not get from bills" in expect(22, newcomer.tries("pubsub client carol subscribe bills"))
    assert "may not ask for status" in expect(
        22, newcomer.tries("pubsub status --key $HOME/.local/share/pirate-pubsub/client/carol/carol.key")
    )
    assert "sk_" not in refused

    operator.types("pubsub keys revoke carol")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while newcomer.tries("echo 2 | pubsub client carol put orders -")[0] != 21:
        assert time.monotonic() < deadline


def expect(code: int, done: tuple[int, str, str]) -> str:
    """What a command says that ends with this exit code: one line."""
    assert done[0] == code, done
    assert done[2].startswith("pubsub: error: ")
    return done[2]


@pytest.mark.slow
def test_the_set_up_on_the_page_runs_as_typed(machines: tuple[Machine, Machine]) -> None:
    operator, newcomer = machines
    address = f"tcp://127.0.0.1:{free_port()}"
    lines = [line.replace("tcp://127.0.0.1:5601", address) for line in block("docs/security.md", "keys new proxy p1")]
    assert len(lines) == 5
    for line in lines[:-1]:
        operator.exports(line) if line.startswith("export") else operator.types(line)
    for command in lines[-1].removesuffix("&").split(" & "):
        operator.leaves_running(command.strip(), "proxy p1 ready" if " proxy " in command else "server s1 ready")

    (made,) = block("docs/security.md", "keys new client alice")
    public = newcomer.types(made).split()[-1]
    (authorized,) = block("docs/security.md", "--put 'orders/*'")
    operator.types(re.sub(r"pk_[\w-]{43}", public, authorized))
    newcomer.exports(f"export PUBSUB_PROXIES_FILE={operator.home}/proxies")
    until(lambda: newcomer.tries("pubsub client alice subscribe orders/new")[0] == 0, "the proxy has read the file")
    newcomer.types("echo hello | pubsub client alice put orders/new -")
    assert newcomer.types("pubsub client alice get orders/new --wait 20") == "hello\n"
    expect(22, newcomer.tries("pubsub client alice subscribe invoices"))


@pytest.mark.slow
def test_a_key_is_rotated_as_on_the_page_and_every_step_keeps_the_client_connected(
    machines: tuple[Machine, Machine],
) -> None:
    operator, newcomer = machines
    operator.leaves_running("pubsub up --dir cluster --proxies 1 --servers 1 --keys", "proxies file:")
    operator.exports("export PUBSUB_AUTHORIZED=cluster/authorized")
    newcomer.exports(f"export PUBSUB_PROXIES_FILE={operator.home}/cluster/proxies")
    old = newcomer.types("pubsub keys new client alice").split()[-1]
    operator.types(f"pubsub keys authorize client alice {old} --put orders")

    def puts() -> bool:
        code, _, err = newcomer.tries("echo 1 | pubsub client alice put orders -")
        assert code in {0, 21}, err
        return code == 0

    until(puts, "the proxy has read the file")
    rotate, authorize, finish, revoke = block("docs/security.md", "keys rotate alice")
    new = newcomer.types(rotate).split()[-1]
    assert new != old
    assert puts()
    assert "put=orders" in operator.types(authorize.replace("pk_NEW", new))
    newcomer.types(finish)
    until(puts, "the proxy has read the file")
    operator.types(revoke.replace("pk_OLD", old))
    assert puts()
    assert old not in (operator.home / "cluster/authorized").read_text()
