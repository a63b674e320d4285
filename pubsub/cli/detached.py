"""`pubsub up --detach`: the same cluster in the background, waited for until it is up.

The cluster is run by a `pubsub up` of its own, in a session of its own, whose output goes to `DIR/up.log`. What it says
when it is ready comes through a pipe, which it closes then; until then this process waits for it, and ends it where
something goes wrong.
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
"""In the cluster's directory: what its processes write."""

DETACHED: Final = "--detached"
"""The option, named in no help, by which the one in the background knows that its output is to end once it is ready."""

UP_SECONDS: Final = 150.0
"""Patience with the whole cluster; it has patience of its own with each process."""

HEARD_SECONDS: Final = 10.0
"""Patience until proxies hear the servers, which have said that they are ready."""

END_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05


def detach(directory: Path, servers: int, options: Sequence[str]) -> None:
    """Start the cluster of a directory, and return when it is up.

    Args:
        directory: of the cluster, which is there.
        servers: how many there are to be.
        options: of `pubsub up`, besides the directory.

    Raises:
        ConfigurationError: the log cannot be written, or the cluster did not come up in time.
        typer.Exit: it did not come up; why is said, and the exit code is its own.
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
        if not said.endswith(b"\n"):  # It has ended without saying that it is ready.
            raise _not_up(process.wait(END_SECONDS), directory, begins)
        _until_heard(directory, {f"s{number}" for number in range(1, servers + 1)})
    except BaseException:
        _end(process)
        raise
    finally:
        process.stdout.close()
    sys.stdout.write(said.decode("utf-8", "replace"))
    console.note(f"the cluster runs in the background; its log: {path}; pubsub down --dir {directory} stops it")


def let_go() -> None:
    """Of the one in the background: it is ready, nobody reads its standard output any more."""
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _said(stream: IO[bytes], log: Path) -> bytes:
    """All that the one in the background says until it is ready, or ends."""
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
    """Say why a cluster has not come up: the last line that it wrote."""
    with (directory / LOG).open("rb") as stream:
        stream.seek(begins)
        lines = stream.read().decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if line.startswith("pubsub: error: ")] or lines[-1:] or ["it said nothing"]
    reason = errors[-1].removeprefix("pubsub: error: ")
    if code != StillRunning.exit_code:
        reason = f"the cluster in {directory} did not come up: {reason}; its log: {directory / LOG}"
    console.complain(reason)
    return typer.Exit(code if code > 0 else console.EXIT_ERROR)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the one in the background, with all of its cluster."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_heard(directory: Path, servers: set[str]) -> None:
    """Return when each proxy hears each of these servers, or after HEARD_SECONDS all the same."""
    from pubsub.client.requests import Proxies

    named, key = read_proxies(directory / "proxies"), directory / "client.key"
    keys = tuple(",".join(map(format_public, one.keys)) for one in named if one.keys)
    if keys and not key.exists():
        return  # Somebody took it away: nobody here may ask.
    settings = ClientSettings(
        proxies=tuple(one.clients for one in named), proxy_keys=keys, key_file=key if keys else None
    )
    deadline = time.monotonic() + HEARD_SECONDS
    with contextlib.suppress(PubsubError), Proxies.of(settings) as proxies:
        while time.monotonic() < deadline:
            if all(_hears(one, servers) for one in proxies.reports("status", "pubsub-up", 1.0).values()):
                return
            time.sleep(POLL_SECONDS)


def _hears(report: Answer, servers: set[str]) -> bool:
    return isinstance(report, dict) and servers <= {one["id"] for one in report["servers"] if one["alive"]}
