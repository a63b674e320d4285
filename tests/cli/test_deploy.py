"""docs/deploy: keys, units, containers and health checks run as they stand, with ports and directories of the test."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.faults.cluster import until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"
PAGE = (ROOT / "docs/how-to/deploy.md").read_text()
UNITS = {path.name.partition("@")[0]: path for path in (DEPLOY / "systemd").glob("*.service")}
ENABLED = re.findall(r"pubsub-\w+@\w+", "".join(re.findall(r"^\$ sudo systemctl enable .*$", PAGE, re.MULTILINE)))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
HERE = ("127.0.0.1", "0.0.0.0")
ANALYZE = shutil.which("systemd-analyze")
PATIENCE_SECONDS = 120.0


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each as often as it stands there."""
    found: dict[str, list[str]] = {}
    for line in UNITS[name].read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


class Place:
    """The places of a test for all that the files put elsewhere; it ends the processes that it started.

    Args:
        root: an empty directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ports: dict[tuple[str, str], int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._shim = root / "bin/pubsub"
        self._shim.parent.mkdir()
        self._shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m pubsub "$@"\n')
        self._shim.chmod(0o755)
        (root / "etc").mkdir(mode=0o700)

    def port(self, host: str, number: str) -> int:
        """The free port that stands for a port of a host."""
        return self._ports.setdefault((host, number), free_port())

    def text(self, text: str, host: str = "") -> str:
        """A text with this test's places, as it means them on a host."""

        def address(found: re.Match[str]) -> str:
            return f"127.0.0.1:{self.port(host if found[1] in HERE else found[1], found[2])}"

        text = re.sub(r"(?<![\w.])([a-z][a-z0-9]*|[0-9.]+):(\d{4,5})\b", address, text)
        text = text.replace("/opt/pubsub/bin/pubsub", str(self._shim)).replace("/etc/pubsub", str(self.root / "etc"))
        return text.replace("/var/lib/pubsub", str(self.root / "var" / host))

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """No variable of the tests, except those that find the package."""
        path = f"{self._shim.parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.root), "PYTHONPATH": str(ROOT), **more}

    def make_keys(self, words: list[str]) -> None:
        """Run keys.sh with these arguments, twice: the second time makes nothing."""
        for _ in range(2):
            subprocess.run(["sh", DEPLOY / "keys.sh", *words], env=self.environment({}), check=True, timeout=120)
        assert len((self.root / "etc/proxies").read_text().splitlines()) == 3

    def start(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        """Start a process, or start it again."""
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words,
                env=self.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
            )

    def ready(self, name: str, url: str) -> None:
        """Wait until a process is ready."""

        def asked() -> bool:
            assert self.running[name].poll() is None, (self.root / f"{name}.log").read_text()
            try:
                return httpx2.get(url, timeout=10.0).status_code == 200
            except httpx2.TransportError:
                return False

        until(asked, f"{name} is ready", PATIENCE_SECONDS)

    def stop(self, name: str, number: int, seconds: float) -> int:
        """The exit code of a process that is told to stop."""
        self.running[name].send_signal(number)
        return self.running[name].wait(seconds)

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


class User:
    """The user admin at a gateway."""

    def __init__(self, url: str, place: Place) -> None:
        token = (place.root / "etc/admin.token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        self.client = httpx2.Client(base_url=url, headers=headers, timeout=120.0)

    def subscribe_and_put(self) -> None:
        """Put a message to orders, for the subscriber shop."""
        self.client.put("/topics/orders/subscribers/shop").raise_for_status()
        self.client.post("/topics/orders/messages", content=b"tea").raise_for_status()

    def gets_it(self) -> None:
        """The message comes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (answer := self.client.get("/topics/orders/subscribers/shop/messages?wait=5")).status_code != 200:
            assert time.monotonic() < deadline, answer.text
        assert [one["body"] for one in answer.json()["messages"]] == ["tea"]


def settings(place: Place, name: str) -> dict[str, str]:
    """An environment file of the examples."""
    lines = (DEPLOY / "systemd/etc" / name).read_text().splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {key: place.text(value) for key, _, value in pairs}


def started(place: Place, name: str) -> dict[str, str]:
    """Start a unit, pubsub-proxy@p1, as systemd does; its environment."""
    template, _, instance = name.partition("@")
    found = unit(template)
    environment: dict[str, str] = {}
    for file in found["EnvironmentFile"]:
        environment |= settings(place, Path(file.replace("%i", instance)).name)
    (directory,) = found["StateDirectory"]
    state = place.root / "var" / directory.replace("%i", instance)
    state.mkdir(parents=True, exist_ok=True)
    environment["STATE_DIRECTORY"] = str(state)
    words: list[str] = []
    (line,) = found["ExecStart"]
    for word in place.text(line.replace("%i", instance)).split():
        if re.fullmatch(r"\$\w+", word):
            words += environment[word[1:]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    place.start(name, words, environment)
    return environment


@pytest.mark.slow
def test_a_cluster_of_the_units_serves_is_killed_and_stops_in_order(place: Place) -> None:
    (line,) = re.findall(r"^\$ .*\bsh docs/deploy/keys\.sh (.*)$", PAGE, re.MULTILINE)
    place.make_keys([place.text(word) for word in shlex.split(line)])
    urls: dict[str, str] = {}
    for name in ENABLED:
        environment = started(place, name)
        metrics = environment.get("PUBSUB_PROXY_METRICS") or environment.get("PUBSUB_SERVER_METRICS")
        urls[name] = f"http://{metrics or environment['GATEWAY_BIND']}"
    for name, url in urls.items():
        place.ready(name, f"{url}/readyz")
    gateway = urls["pubsub-gateway@g1"]
    assert httpx2.get(f"{gateway}/topics").status_code == 401
    user = User(gateway, place)
    user.subscribe_and_put()
    server = "pubsub-server@s1"
    in_sync = "pubsub_server_members_in_sync 2.0"
    until(lambda: in_sync in httpx2.get(f"{urls[server]}/metrics").text, "both members are in sync", PATIENCE_SECONDS)
    assert place.stop(server, signal.SIGKILL, 30.0) == -signal.SIGKILL
    started(place, server)
    user.gets_it()
    place.ready(server, f"{urls[server]}/readyz")
    for name in reversed(ENABLED):
        found = unit(name.partition("@")[0])
        assert found["Restart"] == ["always"]
        number = signal.Signals[found["KillSignal"][0]]
        assert place.stop(name, number, float(found["TimeoutStopSec"][0])) == 0, name


def healthy(place: Place, name: str) -> bool:
    """The answer of a container's health check."""
    first, python, *words = SERVICES[name]["healthcheck"]["test"]
    assert (first, python) == ("CMD", "python")
    command = [sys.executable, *(place.text(word, name) for word in words)]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0


@pytest.mark.slow
def test_a_cluster_of_the_containers_serves_is_killed_and_stops_in_order(place: Place) -> None:
    keys = SERVICES["keys"]
    assert keys["entrypoint"] == ["sh", "/usr/local/bin/keys.sh"]
    place.make_keys([place.text(word) for word in keys["command"]])
    names = [name for name in SERVICES if name != "keys"]

    def start(name: str) -> None:
        environment = {key: place.text(value) for key, value in SERVICES[name]["environment"].items()}
        (place.root / "var" / name).mkdir(parents=True, exist_ok=True)
        words = place.text(SERVICES[name]["command"], name).split()
        place.start(name, [place.text("/opt/pubsub/bin/pubsub"), *words], environment)

    for name in names:
        start(name)
    for name in names:
        until(partial(healthy, place, name), f"{name} is healthy", PATIENCE_SECONDS)
    user = User(place.text("http://127.0.0.1:8080", "gateway"), place)
    user.subscribe_and_put()
    assert place.stop("s1", signal.SIGKILL, 30.0) == -signal.SIGKILL
    start("s1")
    user.gets_it()
    until(partial(healthy, place, "s1"), "s1 is healthy again", PATIENCE_SECONDS)  # Another server may have it.
    for name in reversed(names):
        service = SERVICES[name]
        seconds = float(service["stop_grace_period"].removesuffix("s"))
        assert place.stop(name, signal.Signals[service["stop_signal"]], seconds) == 0, name


def test_each_unit_has_its_example_and_all_are_confined_alike() -> None:
    examples = {path.stem for path in (DEPLOY / "systemd/etc").glob("*.env")} - {"cluster"}
    assert {name.removeprefix("pubsub-").replace("@", "-") for name in ENABLED} == examples
    own = {"Description", "EnvironmentFile", "StateDirectory", "ExecStart"}
    found = [{key: value for key, value in unit(name).items() if key not in own} for name in UNITS]
    assert all(one == found[0] for one in found)
    wanted = {"User": "pubsub", "ProtectSystem": "strict", "ProtectHome": "yes", "NoNewPrivileges": "yes",
              "CapabilityBoundingSet": "", "UMask": "0077", "LimitCORE": "0", "StartLimitIntervalSec": "0"}  # fmt: skip
    assert wanted.items() <= {key: value[0] for key, value in found[0].items()}.items()


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not there")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in UNITS.values():
        (tmp_path / path.name).write_text(
            path.read_text().replace("/opt/pubsub/bin/pubsub", shutil.which("true") or "")
        )
    names = [f"{name}.service" for name in ENABLED]
    done = subprocess.run([str(ANALYZE), "verify", *(f"./{name}" for name in names)], cwd=tmp_path, check=False,
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "pubsub-" in line]
    assert (done.returncode, ours) == (0, [])


def test_containers_are_confined_and_only_the_gateway_is_reachable_with_a_token() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(volume.partition(":")[0] in COMPOSE["volumes"] for volume in service["volumes"]), name
    assert COMPOSE["networks"]["cluster"]["internal"] is True
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["gateway"]
    assert "--tokens" in SERVICES["gateway"]["command"]
    assert SERVICES["gateway"]["ports"] == ["127.0.0.1:8080:8080"]


def test_the_image_is_made_of_existing_files() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert all((ROOT / path).exists() for path in copied)
    assert set(re.findall(r"/source\[(\w+)\]", text)) <= project["optional-dependencies"].keys()
    assert set(re.findall(r"^USER (\w+)$", text, re.MULTILINE)) == {"pubsub"}
    assert 'ENTRYPOINT ["pubsub"]' in text
    lowest = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    assert all(tuple(map(int, found)) >= lowest for found in re.findall(r"python:(\d+)\.(\d+)-slim", text))


def test_prometheus_scrapes_the_ports_of_the_examples() -> None:
    found = yaml.safe_load((ROOT / "docs/monitoring/prometheus.yml").read_text())["scrape_configs"]
    targets = {one for job in found for config in job["static_configs"] for one in config["targets"]}
    texts = [path.read_text() for path in (DEPLOY / "systemd/etc").glob("*.env")]
    told = {
        one for text in texts for one in re.findall(r"^(?:PUBSUB_\w+_METRICS|GATEWAY_BIND)=(.*)$", text, re.MULTILINE)
    }
    assert targets == told
