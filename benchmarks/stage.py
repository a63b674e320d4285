"""The cluster under measurement, with keys or with a standby where that is measured, and what its processes use."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pubsub.cli.bench import stage
from pubsub.cli.cluster import Child
from pubsub.cli.cluster_keys import ClusterKeys
from pubsub.cli.reports import gather
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.security.keys import format_public

_TICKS = os.sysconf("SC_CLK_TCK")


class Stage(stage.Stage):
    """A running cluster, for one repetition of the measures; a context manager.

    Args:
        directory: made, and removed at the end.
        keys: let nobody in without a key.
        standby: give the server a second member; both are in sync when the stage is ready.

    Attributes:
        members: the server's processes.
    """

    def __init__(self, directory: Path, *, keys: bool = False, standby: bool = False) -> None:
        super().__init__(directory)
        self._keys = ClusterKeys(directory) if keys else None
        self._standby = standby

    def _start_all(self) -> None:
        if self._keys is not None:
            self._keys.make_client()
        address = self._start_proxy()
        options = ["--proxy", address.servers]
        if self._keys is not None:
            (named,) = self._keys.named([address])
            self.where |= {"proxy_keys": [format_public(named.keys[0])], "key_file": str(self._keys.client)}
            options += ["--proxy-key", *self.where["proxy_keys"]]
        self._start_server(options)
        self.members = [self.server]
        if self._standby:
            where = self.server.ready.split()[-1]
            self.members.append(self._start("server", "s1b", *options, "--standby-of", where, of="s1"))
            self._cluster.wait_ready()
            self.primary()

    def _locks(self, role: str, name: str, of: str) -> list[str]:
        return super()._locks(role, name, of) if self._keys is None else self._keys.options(role, of or name, name)

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
