"""A command as a handler: the request is its standard input, its standard output is the reply.

The command shares the worker's standard error. An exit code other than 0 is a failure. With a time limit the command
leads a process group of its own, and the whole group is killed when the time is over.

A signal may come just before a system call that waits, or reach another thread. Python's handler then runs only when
that system call returns. Therefore nothing here waits for longer than LOOK_SECONDS at a time. A second signal ends a
worker at once, even if the command ignores it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from shutil import which
from tempfile import TemporaryFile
from typing import Final

from pubsub.base.children import end, started
from pubsub.errors import CallerError, PubsubError
from pubsub.services.calling import REPLY_BYTES_MAX
from pubsub.services.handlers import Handler, Request, echo

LOOK_SECONDS: Final = 0.1
"""Interval at which signals are checked while a command runs."""

_READ_BYTES: Final = 1 << 16

_COMMAND_CODE: Final = 127


class CommandFailed(PubsubError):
    """The command of a worker had an exit code other than 0, was ended by a signal, or wrote too much."""

    def __init__(self, command: str, code: int, reason: str = "") -> None:
        self.command, self.code, self.reason = command, code, reason
        super().__init__(command, code, reason)

    def __str__(self) -> str:
        how = f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"
        return f"{self.command}: {self.reason or how}"


def command_handler(command: Sequence[str], seconds: float | None = None) -> Callable[[Request], bytes]:
    """Return a handler that runs a command for each request.

    Args:
        command: the command and its arguments.
        seconds: time limit of one run; None: no limit.

    Raises:
        CallerError: there is no such command.
    """
    if which(command[0]) is None:
        raise CallerError(f"there is no command {command[0]!r}; check its name and PATH")

    def handle(request: Request) -> bytes:
        with TemporaryFile() as given:  # A pipe would block if the command does not read.
            given.write(request.body)
            given.seek(0)
            try:
                group = None if seconds is None else 0
                child = started(command, stdin=given, stdout=subprocess.PIPE, process_group=group)
            except OSError as error:
                raise CommandFailed(command[0], _COMMAND_CODE, error.strerror or str(error)) from None
            with child:
                return _output(command[0], child, seconds)

    return handle


def _output(name: str, child: subprocess.Popen[bytes], seconds: float | None) -> bytes:
    ends = float("inf") if seconds is None else time.monotonic() + seconds
    try:
        output = _read(child, ends)
        if output is not None and len(output) > REPLY_BYTES_MAX:
            raise CommandFailed(name, 0, f"it wrote more than REPLY_BYTES_MAX = {REPLY_BYTES_MAX:,} bytes")
        code = _code(child, ends) if output is not None else None
        if output is None or code is None:
            raise CommandFailed(name, -signal.SIGKILL, f"it ran for longer than {seconds:g} s and was killed")
    except BaseException:
        end(child, group=seconds is not None)
        raise
    if code != 0:
        raise CommandFailed(name, code)
    return output


def _look_seconds(ends: float) -> float:
    """Seconds of the next wait; 0 when the time is over."""
    return max(0.0, min(LOOK_SECONDS, ends - time.monotonic()))


def _read(child: subprocess.Popen[bytes], ends: float) -> bytes | None:
    """Return the output; None when the time is over. Reads at most one chunk more than REPLY_BYTES_MAX."""
    assert child.stdout is not None
    stream, found = child.stdout.fileno(), bytearray()
    readable = select.poll()
    readable.register(stream, select.POLLIN)
    while len(found) <= REPLY_BYTES_MAX:
        seconds = _look_seconds(ends)
        if not seconds:
            return None
        if readable.poll(seconds * 1000):
            part = os.read(stream, _READ_BYTES)
            if not part:
                break
            found += part
    return bytes(found)


def _code(child: subprocess.Popen[bytes], ends: float) -> int | None:
    """Return the exit code; None when the time is over. A command may run on after it has closed its output."""
    while seconds := _look_seconds(ends):
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    return None


def handler_of(command: Sequence[str] | None, seconds: float | None = None) -> Handler:
    """Return the handler of a command with a time limit in seconds, or `echo` without a command.

    Raises:
        CallerError: there is no such command.
    """
    return command_handler(command, seconds) if command else echo
