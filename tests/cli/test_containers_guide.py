"""docs/how-to/containers.md: the keys, commands and probes of its manifests, as processes of this host."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.faults.cluster import until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/containers.md").read_text()
(MANIFESTS,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ITEMS: list[dict[str, Any]] = yaml.safe_load(MANIFESTS)["items"]
SETS = {one["metadata"]["name"]: one["spec"] for one in ITEMS if one["kind"] == "StatefulSet"}
SERVICES = {one["metadata"]["name"]: one["spec"] for one in ITEMS if one["kind"] == "Service"}
(MAKE_KEYS,) = re.findall(r"^\$ (sh docs/deploy/keys\.sh .*)$", PAGE, re.MULTILINE)


def container(name: str) -> dict[str, Any]:
    (one,) = SETS[name]["template"]["spec"]["containers"]
    return dict(one)


class Pods:
    """Processes that stand for pods; a port of this host stands for each port of each pod."""

    def __init__(self, root: Path) -> None:
        self.root, self._ports = root, dict[tuple[str, str], int]()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (root / "bin").mkdir()
        (root / "bin/pubsub").write_text(f'#!/bin/sh\nexec {sys.executable} -m pubsub "$@"\n')
        (root / "bin/pubsub").chmod(0o755)
        path = f"{root / 'bin'}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "HOME": str(root), "PYTHONPATH": str(ROOT)}

    def port(self, pod: str, number: str | int) -> int:
        return self._ports.setdefault((pod, str(number)), free_port())

    def text(self, text: str, pod: str = "") -> str:
        """A text of the page with this test's places, as a pod means them."""
        text = text.replace("$(POD_NAME)", pod)
        text = re.sub(r"([a-z]+-\d)\.pubsub-\w+:(\d+)", lambda at: f"127.0.0.1:{self.port(at[1], at[2])}", text)
        text = re.sub(r"0\.0\.0\.0:(\d+)", lambda at: f"127.0.0.1:{self.port(pod, at[1])}", text)
        text = text.replace("/etc/pubsub", str(self.root / "keys"))
        return text.replace("/var/lib/pubsub", str(self.root / "volumes" / pod))

    def start(self, pod: str) -> None:
        one = container(pod.partition("-")[0])
        environment = {entry["name"]: self.text(entry["value"], pod) for entry in one["env"] if "value" in entry}
        (self.root / "volumes" / pod).mkdir(parents=True)
        with (self.root / f"{pod}.log").open("wb") as log:
            self.running[pod] = subprocess.Popen(
                [self.root / "bin/pubsub", *(self.text(word, pod) for word in one["args"])],
                env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.root,
            )  # fmt: skip

    def probed(self, pod: str, probe: str) -> bool:
        """Whether a probe of a pod's container succeeds."""
        assert self.running[pod].poll() is None, (self.root / f"{pod}.log").read_text()
        wanted = container(pod.partition("-")[0])[probe]["httpGet"]
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port(pod, wanted['port'])}{wanted['path']}").status_code == 200
        except httpx2.TransportError:
            return False

    def pubsub(self, *words: str) -> str:
        more = {
            "PUBSUB_PROXIES_FILE": str(self.root / "keys/proxies"),
            "PUBSUB_CLIENT_KEY_FILE": str(self.root / "keys/client.key"),
        }
        command = [self.root / "bin/pubsub", *words]
        return subprocess.run(
            command, env=self.environment | more, cwd=self.root, input="hello", capture_output=True, text=True,
            check=True, timeout=120,
        ).stdout  # fmt: skip


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    yield made
    for process in made.running.values():
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_pods_find_each_other_are_ready_and_serve(pods: Pods) -> None:
    words = [pods.text(word) for word in shlex.split(MAKE_KEYS)[2:]]
    subprocess.run(
        ["sh", ROOT / "docs/deploy/keys.sh", *words], env=pods.environment, cwd=pods.root, check=True, timeout=120
    )
    names = [f"{name}-{number}" for name, spec in SETS.items() for number in range(spec["replicas"])]
    for pod in names:
        pods.start(pod)
    for pod in names:
        for probe in ("livenessProbe", "readinessProbe"):
            until(lambda pod=pod, probe=probe: pods.probed(pod, probe), f"{pod} passes its {probe}")
    pods.pubsub("client", "alice", "subscribe", "orders")
    pods.pubsub("client", "bob", "put", "orders", "-")
    assert pods.pubsub("client", "alice", "get", "orders", "--wait", "30") == "hello"
    for pod in names:
        pods.running[pod].terminate()
    for pod in names:
        grace = SETS[pod.partition("-")[0]]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert pods.running[pod].wait(grace) == 0, pod


def test_each_state_directory_is_in_a_volume_and_each_set_has_its_service() -> None:
    for spec in SETS.values():
        pod = spec["template"]["spec"]
        (one,) = pod["containers"]
        mounted = {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
        (claim,) = spec["volumeClaimTemplates"]
        state = Path(one["args"][one["args"].index("--dir") + 1])
        assert mounted[str(state.parent)] == claim["metadata"]["name"]
        assert mounted["/etc/pubsub"] in {volume["name"] for volume in pod["volumes"]}
        service = SERVICES[spec["serviceName"]]
        assert service["clusterIP"] == "None"
        assert service["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
