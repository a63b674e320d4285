"""Processes around a server with two members: three proxies, one a witness, a server without standby, clients.

Every process of a server is behind relays. To a proxy there is one way for all, as servers must name the same proxies;
the relay knows by the port that it is connected from whose connection it is, and can cut one member off alone. Between
the members each is reached by a relay of its own. Each member's directory is a small disk where this machine lets us
mount one, so that it can be full.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.faults.checker import Objection
from tests.faults.cluster import HEARTBEAT_SECONDS, LIVENESS, Cluster, Process, _command, until
from tests.faults.finish import put_end
from tests.faults.reader import NAME, Reader
from tests.faults.relay import Relay
from tests.ports import free_port

TOPICS = ("a", "b", "c/d", "e", "f", "g")
SERVER, MEMBERS, PLAIN = "s1", ("m1", "m2"), "s2"
ROUTING = 2
"""So many proxies route; the third is a witness."""

SKEW_SECONDS = 0.5
HOLD_SECONDS = 3.0
PAUSE_SECONDS = 0.1
DISK_BYTES = 256 << 20
BALLAST = "ballast"
PATIENCE_SECONDS = 120.0

PUBLISHERS = {"plain": ["put", "unwaited"], "mixed": ["lot", "put", "batch", "unwaited"]}
SUBSCRIBERS: dict[str, dict[str, Any]] = {
    "first": {"beside": ["process"]},
    "clumsy": {"clumsy": 0.01},
    "patient": {"beside": ["iterate", "get"]},
}
SPARED = frozenset({"patient"})
"""Who gets and iterates writes down afterwards what it was handed, and is not to be killed."""


class Members:
    """Starts them all; a context manager.

    Args:
        directory: where everything lives.
        seed: of the clients.
        record: where clients write down what they do, for the audit.
        clients: whether there are any, and a named reader.
        plain: whether there is a server without a standby.
        heartbeat: seconds between two of a server's; those of the members' link are half of it.
        disk_bytes: of a member's small disk.
        options: of the members, besides; those that are not about a standby are of the plain server, too.

    Attributes:
        members: the two processes of s1.
        objections: what happened that should not have, besides what the checker says.
        busy: names of those that a fault has hold of, who may be dead just now.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        record: Path | None = None,
        *,
        clients: bool = True,
        plain: bool = True,
        heartbeat: float = HEARTBEAT_SECONDS,
        disk_bytes: int = DISK_BYTES,
        **options: Any,
    ) -> None:
        self._stack = ExitStack()
        self.directory = directory
        self.heartbeat = heartbeat
        self._options, self._disk_bytes = options, disk_bytes
        self.members: list[Process] = []
        self.between: dict[str, Relay] = {}
        self.publishers: list[Process] = []
        self.subscribers: list[Process] = []
        self.objections: list[Objection] = []
        self.busy: set[str] = set()
        self._mounted: set[str] = set()
        self.cluster = Cluster(directory, record)
        self.reader = Reader(directory / "reader.db", self.cluster.addresses, TOPICS)
        try:
            self._start(plain=plain)
            if clients:
                self._start_clients(seed)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, *, plain: bool) -> None:
        cluster = self.cluster
        for _ in range(ROUTING):
            cluster.proxy(heartbeat_seconds=self.heartbeat)
        cluster.proxy(flags=("--witness",), heartbeat_seconds=self.heartbeat)
        self.links = [self._stack.enter_context(Relay(address, self._whose)) for address in cluster.inner]
        cluster.inner[:] = [relay.endpoint for relay in self.links]
        for name in MEMBERS:
            self._member(name)
        if plain:
            times = {"heartbeat_seconds": self.heartbeat, "retention_hold_seconds": self.hold}
            others = {name: value for name, value in self._options.items() if not name.startswith("standby")}
            cluster.server(PLAIN, skew_seconds=SKEW_SECONDS, **times, **others).ready()
        for proxy in cluster.proxies:
            proxy.ready()
        del cluster.addresses[ROUTING:]
        until(self.in_sync, "both members are in sync")

    @property
    def hold(self) -> float:
        """For how many seconds servers keep what everybody has."""
        return max(HOLD_SECONDS, 2 * SKEW_SECONDS + LIVENESS * self.heartbeat)

    @property
    def routing(self) -> list[str]:
        """The addresses that clients know."""
        return self.cluster.addresses

    def _whose(self, port: int) -> str:
        processes = [process for process in self.processes if process.popen is not None]
        return owner_of_port(port, {process.running.pid: process.name for process in processes})

    def _member(self, name: str) -> None:
        bind = f"tcp://127.0.0.1:{free_port()}"
        relay = self.between[name] = self._stack.enter_context(Relay(bind))
        data = self.directory / name
        if small_disk(data, self._disk_bytes):
            self._mounted.add(name)
            self._stack.callback(unmount, data)
        settings = {
            "proxy": self.cluster.inner,
            "data": data / "data",
            "bind": bind,
            "advertise": relay.endpoint,
            "retention_hold_seconds": self.hold,
            "skew_seconds": SKEW_SECONDS,
            "heartbeat_seconds": self.heartbeat,
            "standby_heartbeat_seconds": self.heartbeat / 2,
            **self._options,
        }
        if self.members:
            settings["standby_of"] = self.between[MEMBERS[0]].endpoint
        process = self.cluster.process(name, *_command("server", SERVER, settings))
        self.members.append(process)  # Before it connects: relays ask who that is.
        process.start().wait_line(f"server {SERVER} ready")

    def _start_clients(self, seed: int) -> None:
        cluster = self.cluster
        self.subscribers = [
            cluster.subscriber(name, TOPICS, proxies=self.routing, seed=seed, timeout=5.0, **facts)
            for name, facts in SUBSCRIBERS.items()
        ]
        self._stack.enter_context(self.reader)
        for process in self.subscribers:
            process.wait_line("subscribed")
        until(lambda: self.reader.subscribed, f"{NAME} is subscribed")
        self.publishers = [
            cluster.publisher(
                name, TOPICS, proxies=self.routing, seed=seed, timeout=5.0, pause=PAUSE_SECONDS, padding=300, does=does
            )
            for name, does in PUBLISHERS.items()
        ]

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.__exit__()  # Before their disks are unmounted.
        self._stack.close()

    @property
    def processes(self) -> list[Process]:
        """Everybody."""
        return [*self.cluster.proxies, *self.members, *self.cluster.servers, *self.publishers, *self.subscribers]

    # What is there

    def standby(self) -> dict[str, Any]:
        """What the primary says of both members; {} while nobody does."""
        with suppress(AssertionError), self.cluster.wire(0) as wire:
            report: dict[str, Any] = wire.report(SERVER)
            return dict(report.get("standby") or {})
        return {}

    def in_sync(self) -> bool:
        """Whether both members are."""
        return len(self.standby().get("in_sync", ())) == len(MEMBERS)

    def primary(self) -> Process:
        """The member that serves."""
        said = until(lambda: self.standby().get("member"), "somebody serves", PATIENCE_SECONDS)
        return next(process for process in self.members if self.member_id(process) == said)

    def member_id(self, process: Process) -> str:
        """The ID of a member."""
        return str(json.loads((self.data(process) / "local").read_text())["member"])

    def data(self, process: Process) -> Path:
        """A member's directory."""
        return self.directory / process.name / "data"

    def takeovers(self) -> int:
        """How often a member became primary."""
        files = [path for name in MEMBERS for path in self.cluster.directory.glob(f"{name}.*.err")]
        return sum(path.read_text().count("is primary now") for path in files)

    def progress(self) -> dict[str, int]:
        """What each client has put or taken."""
        counts = {process.name: last_number(process.output) for process in (*self.publishers, *self.subscribers)}
        return counts | {NAME: self.reader.taken}

    # What is done

    def object_to(self, kind: str, text: str) -> None:
        """Something should not have happened."""
        self.objections.append(Objection(kind, text))

    def start(self, process: Process, boot: str = "") -> None:
        """Start one again that has ended; a client in this boot of its host, where one is named."""
        if process in (*self.publishers, *self.subscribers):
            process.again(**({"boot": boot} if boot else {}))
        else:
            process.start()

    def look_after(self) -> None:
        """Those that ended by themselves are an objection each, and are started again."""
        for process in self.processes:
            if process.name not in self.busy and process.running.poll() is not None:
                said = process.errors.read_text().strip().splitlines()[-1:]
                self.object_to("died", f"{process.name} ended with {process.running.returncode}: {' '.join(said)}")
                self.start(process)

    def heal(self) -> None:
        """The network, and the disks."""
        for relay in (*self.links, *self.between.values()):
            relay.heal()
        for member in self.members:
            (self.directory / member.name / BALLAST).unlink(missing_ok=True)

    def mounted(self, member: Process) -> bool:
        """Whether its directory is a small disk."""
        return member.name in self._mounted

    def fill(self, member: Process) -> None:
        """Its disk is full from now on."""
        place = self.directory / member.name
        left = shutil.disk_usage(place).free
        with (place / BALLAST).open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(left, 1))
        with (place / BALLAST).open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    # The end

    def finish(self) -> None:
        """Everybody does what is left and ends; the checker can read then."""
        for process in self.publishers:
            process.say("finish")
        self._end(self.publishers)
        for process in self.subscribers:
            process.say("finish")
        for process in self.subscribers:
            until(lambda process=process: process.lines("finishing"), f"{process.name} has all asked", PATIENCE_SECONDS)
        put_end(self.cluster, TOPICS)
        self._end(self.subscribers)
        until(lambda: self.reader.ended, f"{NAME} has all: {self.reader.taken}", PATIENCE_SECONDS)
        if self.reader.failed is not None:
            self.object_to("reader", f"{type(self.reader.failed).__name__}: {self.reader.failed}")

    def _end(self, processes: Iterable[Process]) -> None:
        for process in processes:
            if process.wait(PATIENCE_SECONDS):
                self.object_to("died", f"{process.name}: {process.errors.read_text()[-2000:]}")


def last_number(output: Path) -> int:
    """The number in the last whole line that has one; 0 where there is none near the end."""
    with output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 200))
        lines = [line.split() for line in file.read().split(b"\n")[:-1]]
    return next((int(line[1]) for line in reversed(lines) if len(line) == 2 and line[1].isdigit()), 0)


def owner_of_port(port: int, names: dict[int, str]) -> str:
    """Who has the TCP socket with this port of the loopback, by process ID; "" where it is nobody of these."""
    local = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(local)}
    for pid, name in names.items():
        with suppress(OSError):
            for file in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{file}") in sockets:
                        return name
    return ""


def small_disk(path: Path, size: int) -> bool:
    """Mount a small disk in memory there; False where this process may not."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


def unmount(path: Path) -> None:
    """What `small_disk` mounted; its files stay, on the disk below."""
    kept = path.with_name(f"{path.name}.kept")
    shutil.copytree(path, kept, ignore=shutil.ignore_patterns(BALLAST), dirs_exist_ok=True)
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
    path.rmdir()
    kept.rename(path)
