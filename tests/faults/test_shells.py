"""The program `pubsub` of shells: a forked command has its descriptors, words and signals, and it has its exit code."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import forkserver
from tests.faults.cluster import Cluster, until
from tests.faults.shells import FORKED, installed

pytestmark = pytest.mark.faults


@pytest.fixture
def pubsub(tmp_path: Path) -> Iterator[Path]:
    with installed(tmp_path / "pubsub"):
        yield tmp_path / "pubsub"


def test_each_forked_command_is_one_of_the_fork_server() -> None:
    assert set(FORKED) <= forkserver.COMMANDS.keys()


def test_commands_of_a_shell_put_and_get_in_its_directory(cluster: Cluster, pubsub: Path) -> None:
    cluster.run(1, 1)
    lines = f"""
        export PUBSUB_CLIENT_PROXIES={cluster.addresses[0]} PUBSUB_CLIENT_DIRECTORY=state
        ./pubsub client bob subscribe t
        echo tea | ./pubsub client alice put t - | cat
        ./pubsub client bob get t > got
        ./pubsub client bob get t --wait 0 || echo "code $?"
        ./pubsub --version
    """
    done = subprocess.run(["bash", "-ec", lines], cwd=pubsub.parent, capture_output=True, text=True, check=False)
    assert (pubsub.parent / "got").read_text() == "tea\n", done.stderr
    assert (pubsub.parent / "state").is_dir()
    first, code, version = done.stdout.splitlines()
    assert first == "bob is subscribed to t"
    assert code == "code 3"
    assert version.startswith("pubsub ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_program_ends_the_command(cluster: Cluster, pubsub: Path, number: signal.Signals) -> None:
    cluster.run(1, 1)
    place = ["--proxy", cluster.addresses[0], "--dir", str(pubsub.parent / "state")]
    subprocess.run([pubsub, "client", "bob", "subscribe", "t", *place], check=True)
    waiting = subprocess.Popen([pubsub, "client", "bob", "get", "t", "--wait", "60", *place])
    waiting.send_signal(number)
    assert waiting.wait(30) != 0
    again = [pubsub, "client", "bob", "get", "t", "--wait", "0", *place]  # The state is free: nobody has it open.
    until(lambda: subprocess.run(again, capture_output=True, check=False).returncode == 3, "the command has ended")
