"""docs/how-to/run-workers.md: the unit's command with its environment file, and the container's, as processes here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubsub.client import Client
from tests.cli.keyed_cluster import directory
from tests.faults.cluster import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

__all__ = ["directory"]  # A fixture.

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"
UNIT = DEPLOY / "workers/pubsub-worker@.service"
PAGE = (ROOT / "docs/how-to/run-workers.md").read_text()
(MANIFEST,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
POD: dict[str, Any] = yaml.safe_load(MANIFEST)["spec"]["template"]["spec"]


class Workers:
    """Processes that are started as the page says; it kills those that still run.

    Args:
        root: an empty directory.
        keys: has the proxies file and `client.key`.
    """

    def __init__(self, root: Path, keys: Path) -> None:
        self.root, self.keys, self.running = root, keys, dict[str, subprocess.Popen[bytes]]()
        (root / "pubsub").write_text(f'#!/bin/sh\nexec {sys.executable} -m pubsub "$@"\n')
        (root / "bill").write_text('#!/bin/sh\ncat >> "$BILLS"\n')
        for name in ("pubsub", "bill"):
            (root / name).chmod(0o755)
        self.bills = root / "bills"

    def text(self, text: str) -> str:
        """A text of the page with this test's places."""
        text = text.replace("/opt/pubsub/bin/pubsub", str(self.root / "pubsub"))
        text = text.replace("/usr/local/bin/bill", str(self.root / "bill"))
        text = re.sub(r"/etc/pubsub/(worker|client)\.key", str(self.keys / "client.key"), text)
        return text.replace("/etc/pubsub", str(self.keys))

    def start(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.root), "PYTHONPATH": str(ROOT), "BILLS": str(self.bills)}
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words, env=own | environment, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def unit(self, number: str) -> None:
        """Start pubsub-worker@NUMBER as systemd does."""
        lines = (DEPLOY / "workers/worker.env").read_text().splitlines()
        environment = dict(self.text(line).split("=", 1) for line in lines if not line.startswith("#"))
        state = self.root / f"worker-{number}"
        state.mkdir(exist_ok=True)
        environment["STATE_DIRECTORY"] = str(state)
        (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
        words: list[str] = []
        for word in self.text(line).replace("%i", number).split():
            if re.fullmatch(r"\$\w+", word):
                words += environment[word[1:]].split()
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
        self.start(f"unit-{number}", words, environment)

    def billed(self) -> list[str]:
        return sorted(self.bills.read_text().split()) if self.bills.exists() else []

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path: Path, directory: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, directory)
    yield made
    made.end()


@pytest.fixture
def client(directory: Path, tmp_path: Path) -> Iterator[Client]:
    named = {"proxies_file": directory / "proxies", "key_file": directory / "client.key"}
    with Client("shop", directory=tmp_path / "shop", **named) as opened:  # type: ignore[arg-type]
        yield opened


def test_the_units_share_the_work_are_killed_and_stop_in_time(workers: Workers, client: Client) -> None:
    client.subscribe("orders", group="billing")
    for number in ("1", "2"):
        workers.unit(number)
    for number in range(20):
        client.put("orders", b"%d\n" % number)
    until(lambda: len(workers.billed()) == 20, "all are billed")
    killed = workers.running["unit-1"]
    killed.kill()
    killed.wait()
    before = number_of(client, "worker-1")
    client.put("orders", b"later\n")
    workers.unit("1")
    until(lambda: "later" in workers.billed(), "the other one or the restarted one bills it")
    assert workers.billed() == sorted([*map(str, range(20)), "later"])
    # A process that still starts would end by the signal itself.
    until(lambda: number_of(client, "worker-1") > before, "the restarted one works")
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    for process in workers.running.values():
        process.send_signal(signal.SIGTERM)
    for process in workers.running.values():
        assert process.wait(int(seconds)) == 0
    until(lambda: client.groups("orders")[0].claimed == 0, "nothing is claimed")
    assert client.groups("orders")[0].in_doubt == 0


def test_the_containers_share_the_work_under_the_names_of_their_pods(workers: Workers, client: Client) -> None:
    share = (ROOT / "docs/how-to/share-work.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```$", share, re.MULTILINE | re.DOTALL)[0]
    (workers.root / "worker.py").write_text(program)
    (container,) = POD["containers"]
    python, *words = container["command"]
    assert python == "python"
    for pod in ("worker-0", "worker-1"):
        named = {one["name"]: workers.text(one["value"]) for one in container["env"] if "value" in one}
        named["PUBSUB_CLIENT_DIRECTORY"] = str(workers.root / pod)
        workers.start(pod, [sys.executable, *(word.replace("$(POD_NAME)", pod) for word in words)], named)
    until(lambda: heard(client) >= {"worker-0", "worker-1"}, "both are members")
    client.put_many("orders", [b"%d" % number for number in range(50)])
    until(lambda: (found := client.groups("orders")[0]).waiting + found.claimed == 0, "all are done")
    for process in workers.running.values():
        process.send_signal(signal.SIGTERM)
    for process in workers.running.values():
        assert process.wait(POD["terminationGracePeriodSeconds"]) == 0


def number_of(client: Client, member: str) -> int:
    """The number of the last message of a member."""
    return max(one.number for one in client.group_members("orders", "billing") if one.client == member)


def heard(client: Client) -> set[str]:
    """The members that are heard."""
    if "orders" not in {one.topic for one in client.topics()} or not client.groups("orders"):
        return set()
    return {one.client for one in client.group_members("orders", "billing") if one.heard and not one.left}


def test_the_state_of_a_pod_is_in_its_volume() -> None:
    (container,) = POD["containers"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    (claim,) = yaml.safe_load(MANIFEST)["spec"]["volumeClaimTemplates"]
    named = {one["name"]: one.get("value", "") for one in container["env"]}
    assert mounted[str(Path(named["PUBSUB_CLIENT_DIRECTORY"]).parent)] == claim["metadata"]["name"]
    assert Path(named["PUBSUB_PROXIES_FILE"]).parent == Path("/etc/pubsub")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/pubsub/bin/pubsub", shutil.which("true") or ""))
    command = ["systemd-analyze", "verify", "./pubsub-worker@1.service"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "pubsub-" in line]) == (0, [])


def test_the_unit_is_confined_as_those_of_the_cluster() -> None:
    server = (DEPLOY / "systemd/pubsub-server@.service").read_text()
    lines = UNIT.read_text().splitlines()
    confined = [
        line for line in server.partition("CapabilityBoundingSet")[2].partition("[Install]")[0].splitlines()[1:] if line
    ]
    assert [line for line in confined if line not in lines] == []
    (line,) = re.findall(r"^\$ .*\bsh docs/deploy/keys\.sh (.*)$", PAGE, re.MULTILINE)
    assert shlex.split(line) == ["/etc/pubsub", "client * worker"]
