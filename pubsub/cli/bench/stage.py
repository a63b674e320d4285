"""The cluster under measurement: one proxy and one server, real processes in a directory of their own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pubsub.cli.bench.worker import open_client
from pubsub.cli.cluster import Child, Cluster
from pubsub.cli.cluster_keys import ClusterKeys
from pubsub.cli.reports import gather
from pubsub.config.addresses import ProxyAddress
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.security.keys import format_public

if TYPE_CHECKING:
    from pubsub.client import Client

_TICKS = os.sysconf("SC_CLK_TCK")


class Stage:
    """A running cluster, for one repetition of the measures; a context manager.

    Args:
        directory: made, and removed at the end.
        keys: let nobody in without a key.
        standby: give the server a second member; both are in sync when the stage is ready.

    Attributes:
        proxy: its address.
        members: the server's processes.
        where: how a client reaches it: settings by name, as JSON can say them.
    """

    def __init__(self, directory: Path, *, keys: bool = False, standby: bool = False) -> None:
        self.directory = directory
        self.proxy = ""
        self.where: dict[str, Any] = {}
        self._keys, self._standby = keys, standby
        self._numbers = count(1)
        self._cluster: Cluster

    def __enter__(self) -> Stage:
        self.directory.mkdir(parents=True)
        self._log = (self.directory / "log").open("wb")
        self._cluster = Cluster(errors=self._log)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self._cluster.__enter__()
        try:
            keys = ClusterKeys(self.directory) if self._keys else None
            if keys is not None:
                keys.make_client()
            any_port = ("--bind", "tcp://127.0.0.1:0", "--servers", "tcp://127.0.0.1:0", "--startup-wait-seconds", "0")
            proxy = self._start(keys, "proxy", "p1", *any_port)
            self._cluster.wait_ready()
            address = listening(proxy)
            self.proxy, self.where = address.clients, {"proxies": [address.clients]}
            options = ["--proxy", address.servers]
            if keys is not None:
                (named,) = keys.named([address])
                self.where |= {"proxy_keys": [format_public(named.keys[0])], "key_file": str(keys.client)}
                options += ["--proxy-key", *self.where["proxy_keys"]]
            self.server = self._start(keys, "server", "s1", *options)
            self._cluster.wait_ready()
            self.members = [self.server]
            if self._standby:
                where = self.server.ready.split()[-1]
                self.members.append(self._start(keys, "server", "s1b", *options, "--standby-of", where, of="s1"))
                self._cluster.wait_ready()
                self.primary()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        finally:
            for number, handler in before.items():  # A measure is interrupted at once, not when it is over.
                signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__()
        if kind is not None:
            sys.stderr.write((self.directory / "log").read_text(encoding="utf-8", errors="replace"))
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, keys: ClusterKeys | None, role: str, name: str, *options: str, of: str = "") -> Child:
        # What the environment says of another cluster's keys is nothing to this one.
        locked = ["--authorized", "none"] if keys is None else keys.options(role, of or name, name)
        return self._cluster.start(role, name, *options, "--dir", str(self.directory / name), *locked, of=of)

    def name(self, word: str) -> str:
        """A name that was not used on this stage yet: of a topic or a client."""
        return f"{word}{next(self._numbers)}"

    def client(self, word: str) -> Client:
        """A client of a new name, opened."""
        return open_client(self.where, self.directory / self.name(word))

    @property
    def processes(self) -> dict[str, int]:
        """Process IDs by role."""
        return {child.role: child.process.pid for child in self._cluster.children}

    @property
    def wal_bytes(self) -> int:
        """Size of the server's write-ahead log."""
        return (self.directory / "s1" / "server.db-wal").stat().st_size

    def primary(self) -> Child:
        """The member that serves, once both are in sync.

        Raises:
            ConfigurationError: they are not within a minute.
        """
        settings, deadline = ClientSettings(**self.where), time.monotonic() + 60
        while time.monotonic() < deadline:
            for row in gather(settings, 2.0)["standbys"]:
                found = [child for child in self.members if child.ready.endswith(f" {row['address']}")]
                if row["state"] == "in sync" and found:
                    return found[0]
            time.sleep(0.05)
        raise ConfigurationError("the standby was not in sync within a minute")

    def kill(self, member: Child) -> None:
        """SIGKILL; it is gone when this returns."""
        self._cluster.kill(member)

    def restart(self, member: Child) -> None:
        """Start it again, and wait until both are in sync."""
        self._cluster.restart(member)
        self._cluster.wait_ready()
        self.primary()

    def kill_server(self) -> None:
        """SIGKILL; it is gone when this returns."""
        self.server.process.kill()
        self.server.process.wait()

    def restart_server(self) -> None:
        """Start it again, without waiting for it."""
        self._cluster.restart(self.server)


def listening(proxy: Child) -> ProxyAddress:
    """Where a proxy listens, from its ready line.

    Raises:
        ConfigurationError: it was stopped before it was ready.
    """
    addresses = [word for word in proxy.ready.replace(",", " ").split() if "://" in word]
    if len(addresses) != 2:
        raise ConfigurationError("the cluster was stopped before it was ready")
    return ProxyAddress(addresses[0], addresses[1])


def resident_bytes(process: int) -> int:
    """Memory of a process (Linux)."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
