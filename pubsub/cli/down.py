"""`pubsub down`: stops the cluster that `pubsub up` runs in a directory, and waits for that."""

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
"""Patience with the cluster, which has patience of its own with each of its processes."""

POLL_SECONDS: Final = 0.02

app = typer.Typer(name="down", rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def down(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the cluster lives.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stop the cluster that pubsub up runs in DIR, in the background or not, and return when all of it has ended.

    Where none is running that is said, and is no error.
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
    """End the cluster that holds this file's lock; its processes, none where nobody holds it."""
    if _is_free(file):
        return []
    found = living(file)
    # `pubsub up` ends the others in order. Where it was killed they end by themselves, and need no more than a moment.
    for one in [one for one in found if one["role"] == "up"] or found:
        _terminate(one)
    deadline = time.monotonic() + WAIT_SECONDS
    while not _is_free(file) or living(file):  # `pubsub up` gives its share up a moment before it ends.
        if time.monotonic() > deadline:
            left = _named(living(file)) or "its processes are not known"
            raise ConfigurationError(f"the cluster in {directory} did not stop within {WAIT_SECONDS:g} s: {left}")
        time.sleep(POLL_SECONDS)
    return found


def _is_free(file: IO[str]) -> bool:
    """Whether no process of a cluster is left: each of them has a share of the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _terminate(process: Process) -> None:
    """SIGTERM to this very process, and to no other one that was given its ID meanwhile."""
    pid = process["pid"]
    try:
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        handle = os.pidfd_open(pid)
    except OSError:
        return  # It has ended.
    try:
        if is_living(process):  # What the handle names can be no other one from now on.
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except OSError:
        pass
    finally:
        os.close(handle)
