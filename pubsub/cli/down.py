"""`pubsub down`: stops the cluster that `pubsub up` runs in a directory, and waits until it has ended."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from pubsub import console
from pubsub.cli.cluster_lock import STOP_SECONDS, Process, is_living, living, title
from pubsub.errors import ConfigurationError

WAIT_SECONDS: Final = 3 * STOP_SECONDS
"""Time limit for the whole cluster; each process also has its own."""

POLL_SECONDS: Final = 0.02

app = typer.Typer(name="down", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def down(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Directory given to pubsub up.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stop the cluster that pubsub up runs in DIR.

    The command returns when all processes of the cluster have ended. It stops a cluster in the foreground and one
    started with --detach. If none is running, it reports that and exits with 0. The state in DIR stays; pubsub up --dir
    DIR continues with it.
    """
    path = directory / "running"
    try:
        file = path.open("r+", encoding="utf-8") if directory.is_dir() and path.exists() else None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    if file is None and not directory.is_dir():
        raise ConfigurationError(f"--dir {directory}: no such directory")
    stopped: list[Process] = []
    if file is not None:
        with file:
            stopped = _stop(file, directory)
    text = (
        f"stopped the cluster in {directory}: {_named(stopped)}" if stopped else f"no cluster is running in {directory}"
    )
    facts = [{name: one[name] for name in ("role", "id", "pid")} for one in stopped]
    console.report(as_json, {"directory": str(directory), "stopped": facts}, text)


def _named(processes: list[Process]) -> str:
    return ", ".join(f"{title(one)} (pid {one['pid']})" for one in processes)


def _stop(file: IO[str], directory: Path) -> list[Process]:
    """End the cluster that holds this file's lock; return its processes, [] if nobody holds the lock."""
    if _is_free(file):
        return []
    found = living(file)
    # `pubsub up` ends the others in order. If it was killed, they end by themselves within a moment.
    for one in [one for one in found if one["role"] == "up"] or found:
        _terminate(one)
    deadline = time.monotonic() + WAIT_SECONDS
    while not _is_free(file) or living(file):  # `pubsub up` releases its share of the lock shortly before it ends.
        if time.monotonic() > deadline:
            left = _named(living(file)) or "its processes are not known"
            raise ConfigurationError(f"the cluster in {directory} did not stop within {WAIT_SECONDS:g} s: {left}")
        time.sleep(POLL_SECONDS)
    return found


def _is_free(file: IO[str]) -> bool:
    """Return True if no process of a cluster is left: each of them has a share of the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _terminate(process: Process) -> None:
    """Send SIGTERM to this very process, and never to another one that reuses its PID."""
    pid = process["pid"]
    try:
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        handle = os.pidfd_open(pid)
    except OSError:
        return  # The process has ended.
    try:
        if is_living(process):  # From here on the handle cannot refer to another process.
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except OSError:
        pass
    finally:
        os.close(handle)
