"""Real processes for tests: proxies, servers and clients that are started, killed, stopped and started again.

Each is a child of the test, is only ever signalled through its own handle, and is ended when the test is over. What it
prints goes to a file; the test waits for lines in it, never for a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pubsub import Client
from pubsub.cli.cluster_keys import ClusterKeys
from pubsub.config.addresses import ProxyAddress
from pubsub.config.settings import ClientSettings
from pubsub.messenger.curve import CurveClient
from pubsub.protocol import Report
from pubsub.security.files import read_key_file
from pubsub.security.keys import format_public, parse_public
from pubsub.security.pairs import pair_of
from tests.faults import forkserver
from tests.faults.wire import Wire
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
"""Guards against a process that hangs. A slow machine that is busy needs a large part of it, and that is no failure."""
SPARK_SECONDS = 600.0
"""The same for a driver of Spark."""
HEARTBEAT_SECONDS = 0.2
LIVENESS = 3
DEAD_SECONDS = HEARTBEAT_SECONDS * LIVENESS
PAUSE_SECONDS_MAX = 0.02
"""Between two looks at a condition."""


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Poll a condition with a deadline; return its value. Pauses grow with the wait, so a long wait costs little."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(min(PAUSE_SECONDS_MAX, max(0.005, waited / 20)))
    return found


class Process:
    """One process.

    Args:
        name: for its files.
        directory: where its output goes.
        command: the words after the interpreter.
    """

    def __init__(self, name: str, directory: Path, command: Sequence[str]) -> None:
        self.name, self.command = name, list(command)
        self._directory = directory
        self._starts = 0
        self.popen: subprocess.Popen[bytes] | forkserver.Child | None = None

    def start(self, *extra: str) -> Process:
        """Starts it, with these arguments more."""
        assert self.popen is None or self.popen.poll() is not None, f"{self.name} is running"
        self._starts += 1
        self.output = self._directory / f"{self.name}.{self._starts}.out"
        self.errors = self._directory / f"{self.name}.{self._starts}.err"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PUBSUB_")}
        environment["PYTHONPATH"] = str(ROOT)
        command = [*self.command, *extra]
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            if (server := forkserver.current()) is not None and server.takes(command):
                self.popen = server.start(command, environment, out.fileno(), err.fileno())
            else:
                self.popen = subprocess.Popen(
                    [sys.executable, *command], stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=ROOT, env=environment
                )
        return self

    def again(self, **changed: Any) -> Process:
        """Starts a worker that has ended, with these of its facts changed; None leaves one out."""
        facts = json.loads(self.command[-1]) | changed
        self.command[-1] = json.dumps({key: value for key, value in facts.items() if value is not None})
        return self.start()

    @property
    def running(self) -> subprocess.Popen[bytes] | forkserver.Child:
        """The process."""
        assert self.popen is not None
        return self.popen

    def lines(self, word: str) -> list[str]:
        """The whole lines that it has printed and that begin so."""
        text = self.output.read_text()
        return [line for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith(word)]

    def wait_line(self, word: str) -> str:
        """The last line that begins so, once there is one."""

        def found() -> str:
            lines = self.lines(word)
            if not lines and self.running.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.running.returncode}: {self.errors.read_text()}")
            return lines[-1] if lines else ""

        return str(until(found, f"{self.name} says {word!r}"))

    def ready(self) -> str:
        """Its ready line."""
        return self.wait_line(f"{'proxy' if 'proxy' in self.command else 'server'} {self.name} ready")

    def number(self, word: str) -> int:
        """The number in the last line that begins so; 0 where there is none."""
        lines = self.lines(word)
        return int(lines[-1].split()[1]) if lines else 0

    def say(self, word: str) -> None:
        """Writes a line to its standard input."""
        assert self.running.stdin is not None
        try:
            self.running.stdin.write(f"{word}\n".encode())
            self.running.stdin.flush()
        except BrokenPipeError:
            code = self.running.wait()
            raise AssertionError(f"{self.name} ended with {code}: {self.errors.read_text()[-4000:]}") from None

    def kill(self) -> None:
        """SIGKILL."""
        self.running.kill()
        self.running.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self.running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.running.send_signal(signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.running.wait(seconds)
        except subprocess.TimeoutExpired:
            last = self.output.read_text().splitlines()[-1:]
            raise AssertionError(
                f"{self.name} goes on after {seconds:g} s; it said {last}; {self.errors.read_text()[-2000:]}"
            ) from None

    def end(self) -> None:
        """In any state."""
        if self.popen is not None:
            if self.popen.poll() is None:
                self.popen.kill()
                self.popen.wait()
            if self.popen.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self.popen.stdin.close()


class Cluster:
    """Proxies and servers, and the clients of a test; a context manager.

    Attributes:
        addresses: of the proxies' client side, in order.
        inner: of their server side.
        record: where all clients write down their calls; None: nowhere.
        keys: of all its processes, and of clients one that may do everything; None: nobody has any.
    """

    def __init__(self, directory: Path, record: Path | None = None, *, keys: bool = False) -> None:
        self.directory, self.record = directory, record
        # Not in the processes' own directories: a proxy may lose all that it had there.
        self.keys = ClusterKeys(directory / "keys") if keys else None
        if self.keys is not None:
            (directory / "keys").mkdir()
            self.keys.make_client()
        self.processes: list[Process] = []
        self.proxies: list[Process] = []
        self.servers: list[Process] = []
        self.addresses: list[str] = []
        self.inner: list[str] = []
        self.clients: list[Client] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            process.end()

    def run(self, proxies: int = 2, servers: int = 2, **options: Any) -> Cluster:
        """Starts so many of each and waits until all hear each other; options are the servers'."""
        for _ in range(proxies):
            self.proxy()
        for _ in range(servers):
            self.server(**options)
        self.wait_ready()
        for proxy in range(proxies):
            until(lambda proxy=proxy: self._heard(proxy) == servers, "the proxy hears every server")
        return self

    def _heard(self, proxy: int) -> int:
        return sum(server["alive"] for server in self.report("-", proxy)["servers"])

    def wait_ready(self) -> None:
        """Until every proxy and server has said that it is ready."""
        for process in (*self.proxies, *self.servers):
            process.ready()

    def process(self, name: str, *command: str) -> Process:
        """A process that is ended with the cluster; it is not started."""
        made = Process(name, self.directory, command)
        self.processes.append(made)
        return made

    def proxy(self, *, flags: Sequence[str] = (), **options: Any) -> Process:
        """Starts one more proxy; `flags`: words of its command besides."""
        name = f"p{len(self.proxies) + 1}"
        client_side, server_side = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        settings = {"bind": client_side, "servers": server_side, "data": self.directory / name} | options
        made = self.process(name, *_command("proxy", name, settings), *flags, *self._locked("proxy", name))
        self.proxies.append(made.start("--startup-wait-seconds", "0"))  # There is no owner to wait for yet.
        self.addresses.append(client_side)
        self.inner.append(server_side)
        return made

    def server(
        self, name: str = "", *, proxies: Sequence[str] = (), entry: Sequence[str] = ("-m", "pubsub"), **options: Any
    ) -> Process:
        """Starts one more server; `entry`: the program that takes the command's words."""
        name = name or f"s{len(self.servers) + 1}"
        settings = {"proxy": proxies or self.inner, "data": self.directory / name} | options
        known = [word for key in self.proxy_keys() for word in ("--proxy-key", key)]
        made = self.process(name, *_command("server", name, settings, entry), *known, *self._locked("server", name))
        self.servers.append(made.start())
        return made

    def _locked(self, role: str, name: str) -> list[str]:
        return [] if self.keys is None else self.keys.options(role, name)

    def proxy_keys(self, addresses: Sequence[str] = ()) -> list[str]:
        """The public keys of proxies, as text; [] where there are none.

        Args:
            addresses: of which of them, by their client sides, in this order; (): of all.
        """
        if self.keys is None:
            return []
        named = self.keys.named([ProxyAddress(address, address) for address in self.addresses])
        known = {proxy.clients: format_public(proxy.keys[0]) for proxy in named}
        return [known[address] for address in addresses or self.addresses]

    def key_settings(self, addresses: Sequence[str] = ()) -> dict[str, Any]:
        """The keys that a client of these proxies needs, as JSON."""
        if self.keys is None:
            return {}
        return {"proxy_keys": self.proxy_keys(addresses), "key_file": str(self.keys.client)}

    def wire(self, proxy: int = 0, address: str = "") -> Wire:
        """A link to a proxy; to its own client side, or to another address of it."""
        place = address or self.addresses[proxy]
        if self.keys is None:
            return Wire(place)
        expected = (parse_public(self.proxy_keys()[proxy]),)
        return Wire(place, CurveClient(pair_of(read_key_file(self.keys.client)), expected))

    def publisher(self, name: str, topics: Sequence[str], **options: Any) -> Process:
        """Starts a publisher; see `publisher.py`."""
        return self._worker("publisher", name, topics, options)

    def subscriber(self, name: str, topics: Sequence[str], **options: Any) -> Process:
        """Starts a subscriber; see `subscriber.py`."""
        return self._worker("subscriber", name, topics, options)

    def caller(self, name: str, service: str, **options: Any) -> Process:
        """Starts a caller or a worker of a service; see `calls.py`."""
        return self._worker("calls", name, [service], options)

    def _worker(self, role: str, name: str, topics: Sequence[str], options: dict[str, Any]) -> Process:
        facts = {
            "name": name,
            "directory": str(self.directory / "clients"),
            "proxies": self.addresses,
            "topics": list(topics),
            "keys": self.key_settings(options.get("proxies", ())),
            **({"record": str(self.record)} if self.record is not None else {}),
            **options,
        }
        return self.process(name, "-m", f"tests.faults.{role}", json.dumps(facts)).start()

    def client(self, name: str, *, directory: Path | None = None, **options: Any) -> Client:
        """A client in this process; it is closed with the cluster."""
        proxies = tuple(options.pop("proxies", self.addresses))
        settings = ClientSettings(
            proxies=proxies,
            directory=directory or self.directory / "clients",
            record=self.record,
            **self.key_settings(proxies),
            **({"timeout_seconds": PATIENCE_SECONDS} | options),
        )
        self.clients.append(Client(name, settings=settings))
        return self.clients[-1]

    def state(self, name: str) -> Path:
        """The database of a client."""
        return self.directory / "clients" / f"{name}.db"

    def holders(self, topic: str, proxy: int = 0) -> list[str]:
        """The holders of a topic that a proxy knows, once it knows any. It hears of puts through another one later."""
        with self.wire(proxy) as wire:

            def known() -> list[str]:
                rows = json.loads(bytes(wire.ask(Report("test", "-", topic)).body))["topics"]
                return [holder["server"] for row in rows for holder in row["holders"]]

            return list(until(known, f"proxy {proxy + 1} knows a holder of {topic}"))

    def report(self, target: str, proxy: int = 0) -> dict[str, Any]:
        """The report of a server ("s1") or a proxy ("-"), once the proxy can tell."""
        with self.wire(proxy) as wire:
            return dict(until(lambda: wire.report(target), f"{target} reports"))


def _command(role: str, name: str, settings: dict[str, Any], entry: Sequence[str] = ("-m", "pubsub")) -> list[str]:
    out = [*entry, role, "start", "--id", name]
    for key, value in {"heartbeat_seconds": HEARTBEAT_SECONDS, "liveness": LIVENESS, **settings}.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            out += [f"--{key.replace('_', '-')}", str(one)]
    return out
