"""The lock that limits a directory to one cluster, and the list of the cluster's processes."""

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
"""Time for a child to end after SIGTERM; after it the child is killed and reported."""


Process = dict[str, Any]
"""A process of a cluster: `role`, `id`, `pid`, and `started`, its start time."""


class StillRunning(StorageError):
    """The cluster of a directory is already running."""

    exit_code = 9

    def __init__(self, path: str, processes: str) -> None:
        named = processes or "its processes are not known"
        super().__init__(
            path,
            f"this cluster is running already: {named}; to start it with other options, stop it first:"
            f" pubsub down --dir {path}",
        )


class Running:
    """`DIR/running`: locked while any process of the cluster lives, with a line for each process.

    Raises:
        StillRunning: another cluster holds the lock and does not end by itself.
        ConfigurationError: the file cannot be made.
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
            """Return the listed processes that still live; a process that reuses the PID of an ended one is left out.
            """
            # If `pubsub up` was killed, its children end by themselves and release the lock.
            if any(one["role"] == "up" for one in living) or time.monotonic() > deadline:
                self._file.close()
                raise StillRunning(str(directory), ", ".join(f"{title(one)} (pid {one['pid']})" for one in living))
            time.sleep(0.05)
        self._file.truncate(0)
        self.note("up", "", os.getpid())

    @property
    def number(self) -> int:
        """The file descriptor that children inherit; with it they hold the lock."""
        return self._file.fileno()

    def note(self, role: str, name: str, pid: int) -> None:
        line = {"role": role, "id": name, "pid": pid, "started": started(pid)}
        with suppress(OSError):  # On a full disk the lock still works; only the process list is incomplete.
            os.write(self.number, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Release this process's share of the lock."""
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
    """Return True if this very process lives: not a zombie, and not another process that reuses its PID."""
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, since = _stat(process["pid"])
    return state not in {"Z", "X"} and process.get("started", "") in {"", since}


def started(pid: int) -> str:
    """Return the start time of a process in the system's own units; "" where the system does not report it.

    PID and start time together identify a process, because PIDs are reused.
    """
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    """Return state and start time from `/proc/PID/stat` (proc(5)); "" for each if there is no such file."""
    try:
        # The program's name comes before these fields, in brackets, and may contain spaces and brackets.
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


def title(process: Process) -> str:
    """Return role and ID, as messages name a process."""
    return f"{process['role']} {process['id']}".strip()
