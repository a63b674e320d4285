"""`pubsub up --detach`: starts the cluster in the background and waits until it is up.

A second `pubsub up` runs the cluster in its own session and logs to `DIR/up.log`. It reports through a pipe and closes
the pipe when it is ready. Until then this process waits, and ends the cluster if something fails.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import typer

from pubsub import console
from pubsub.cli.cluster_lock import StillRunning
from pubsub.config.addresses import read_proxies
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError, PubsubError
from pubsub.security.keys import format_public

if TYPE_CHECKING:
    from pubsub.client.requests import Answer

LOG: Final = "up.log"
"""Log file in the cluster's directory, with the output of all its processes."""

DETACHED: Final = "--detached"
"""Hidden option of the background process: it closes its standard output when it is ready."""

UP_SECONDS: Final = 150.0
"""Time limit for the whole cluster; each process also has its own."""

CONNECTED_SECONDS: Final = 10.0
"""Time limit for the proxies to receive a heartbeat of each server after the servers are ready."""

END_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05


def detach(directory: Path, servers: int, options: Sequence[str]) -> None:
    """Start the cluster of a directory, and return when it is up.

    Args:
        directory: an existing directory.
        servers: number of servers to wait for.
        options: options of `pubsub up` except --dir.

    Raises:
        ConfigurationError: the log cannot be written, or the cluster was not up in time.
        typer.Exit: the cluster ended during its start. The reason is printed, and the exit code is the cluster's own.
    """
    path = directory / LOG
    try:
        log = path.open("ab")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    with log:
        begins = log.tell()
        command = [sys.executable, "-m", "pubsub", "up", "--dir", str(directory), *options, DETACHED]
        process = subprocess.Popen(  # noqa: S603  our own interpreter and our own command
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdout is not None
    try:
        said = _said(process.stdout, path)
        if not said.endswith(b"\n"):  # It ended before it was ready.
            raise _not_up(process.wait(END_SECONDS), directory, begins)
        _until_connected(directory, {f"s{number}" for number in range(1, servers + 1)})
    except BaseException:
        _end(process)
        raise
    finally:
        process.stdout.close()
    sys.stdout.write(said.decode("utf-8", "replace"))
    console.note(f"the cluster runs in the background; its log: {path}; pubsub down --dir {directory} stops it")


def let_go() -> None:
    """Called in the background process once it is ready: redirect its standard output to the log."""
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _said(stream: IO[bytes], log: Path) -> bytes:
    """Return everything that the background process prints until it is ready or ends."""
    deadline, said = time.monotonic() + UP_SECONDS, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            more = os.read(stream.fileno(), 65_536)
            if not more:
                return said
            said += more
    raise ConfigurationError(f"the cluster was not up within {UP_SECONDS:g} s; its log: {log}")


def _not_up(code: int, directory: Path, begins: int) -> typer.Exit:
    """Report why a cluster did not start: the last error in its log."""
    with (directory / LOG).open("rb") as stream:
        stream.seek(begins)
        lines = stream.read().decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if line.startswith("pubsub: error: ")] or lines[-1:] or ["no error was logged"]
    reason = errors[-1].removeprefix("pubsub: error: ")
    if code != StillRunning.exit_code:
        reason = f"the cluster in {directory} did not come up: {reason}; its log: {directory / LOG}"
    console.complain(reason)
    return typer.Exit(code if code > 0 else console.EXIT_ERROR)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the background process and with it the whole cluster."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_connected(directory: Path, servers: set[str]) -> None:
    """Return when each proxy receives heartbeats of each of these servers, or after CONNECTED_SECONDS."""
    from pubsub.client.requests import Proxies

    named, key = read_proxies(directory / "proxies"), directory / "client.key"
    keys = tuple(",".join(map(format_public, one.keys)) for one in named if one.keys)
    if keys and not key.exists():
        return  # The client key was removed, so the proxies cannot be asked.
    settings = ClientSettings(
        proxies=tuple(one.clients for one in named), proxy_keys=keys, key_file=key if keys else None
    )
    deadline = time.monotonic() + CONNECTED_SECONDS
    with contextlib.suppress(PubsubError), Proxies.of(settings) as proxies:
        while time.monotonic() < deadline:
            if all(_is_connected(one, servers) for one in proxies.reports("status", "pubsub-up", 1.0).values()):
                return
            time.sleep(POLL_SECONDS)


def _is_connected(report: Answer, servers: set[str]) -> bool:
    return isinstance(report, dict) and servers <= {one["id"] for one in report["servers"] if one["alive"]}
