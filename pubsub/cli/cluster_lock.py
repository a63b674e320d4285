"""One directory runs one cluster: a lock that lasts as long as any of its processes, and who these are."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from pubsub.errors import ConfigurationError, StorageError

STOP_SECONDS: Final = 5.0
"""Patience with a child after SIGTERM; then it is killed, and that is said."""


Process = dict[str, Any]
"""A process of a cluster: `role`, `id`, `pid`, and when it was `started`."""


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
                raise StillRunning(str(directory), ", ".join(f"{title(one)} (pid {one['pid']})" for one in living))
            time.sleep(0.05)
        self._file.truncate(0)
        self.note("up", "", os.getpid())

    @property
    def number(self) -> int:
        """The file descriptor that children are to inherit: with it they hold the lock."""
        return self._file.fileno()

    def note(self, role: str, name: str, pid: int) -> None:
        """Write down a process of the cluster."""
        line = {"role": role, "id": name, "pid": pid, "started": started(pid)}
        with suppress(OSError):  # On a full disk: the lock holds all the same, only who it is would not be known.
            os.write(self.number, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Give up this process's share of the lock."""
        self._file.close()

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _living(self) -> list[Process]:
        return living(self._file)


def living(file: IO[str]) -> list[Process]:
    """The processes of a cluster that live, as its file names them; not another one that has the ID of one by now."""
    file.seek(0)
    found = []
    for line in file:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if is_living(one):
            found.append(one)
    return found


def is_living(process: Process) -> bool:
    """Whether this very process lives; not one that has ended and is a zombie, nor another one under its ID."""
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, since = _stat(process["pid"])
    return state not in {"Z", "X"} and process.get("started", "") in {"", since}


def started(pid: int) -> str:
    """When a process was started, as the system counts it; "" where the system does not tell.

    With its ID this tells a process from another one that was given the same ID later.
    """
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    """State and start of a process, as of proc(5), `/proc/PID/stat`; "" where there is no such file."""
    try:
        # The name of the program stands before them, in brackets, and may hold anything.
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


def title(process: Process) -> str:
    """Which process of a cluster it is."""
    return f"{process['role']} {process['id']}".strip()
