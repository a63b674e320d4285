"""One directory runs one cluster: a lock that lasts as long as any of its processes, and who these are."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pubsub.errors import ConfigurationError, StorageError

STOP_SECONDS: Final = 5.0
"""Patience with a child after SIGTERM; then it is killed, and that is said."""


class StillRunning(StorageError):
    """The cluster of a directory is running."""

    exit_code = 9

    def __init__(self, path: str, processes: str) -> None:
        named = processes or "its processes are not known"
        super().__init__(
            path, f"this cluster is running already: {named}; to start it with other options (--keys), stop it first"
        )


class Running:
    """`DIR/running`: locked while any process of the cluster lives, with a line for each of them.

    Raises:
        StillRunning: another process has it, and does not end by itself.
        ConfigurationError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "running"
        try:
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        deadline = time.monotonic() + STOP_SECONDS
        while not self._lock():
            living = self._living()
            # After a kill of `pubsub up` its children end by themselves, and then the lock is free.
            if any(one["role"] == "up" for one in living) or time.monotonic() > deadline:
                self._file.close()
                raise StillRunning(str(directory), ", ".join(f"{_title(one)} (pid {one['pid']})" for one in living))
            time.sleep(0.05)
        self._file.truncate(0)
        self.note("up", "", os.getpid())

    @property
    def number(self) -> int:
        """The file descriptor that children are to inherit: with it they hold the lock."""
        return self._file.fileno()

    def note(self, role: str, name: str, pid: int) -> None:
        """Write down a process of the cluster."""
        with suppress(OSError):  # On a full disk: the lock holds all the same, only who it is would not be known.
            os.write(self.number, json.dumps({"role": role, "id": name, "pid": pid}).encode() + b"\n")

    def close(self) -> None:
        """Give up this process's share of the lock."""
        self._file.close()

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _living(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        found = []
        for line in self._file:
            try:
                one = json.loads(line)
                os.kill(one["pid"], 0)
            except (ValueError, ProcessLookupError):
                continue
            except PermissionError:
                pass
            found.append(one)
        return found


def _title(process: dict[str, Any]) -> str:
    return f"{process['role']} {process['id']}".strip()
