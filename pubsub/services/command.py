"""A command as a handler: the request on its standard input, the reply from its standard output.

What it says on standard error goes where ours goes. With another exit code than 0 it has failed. Where it may run for a
limited time it leads a process group of its own, all of which is killed when the time is over.

A signal may come just before a system call that waits, or be handed to another thread by the kernel, and then Python's
handler runs when that call returns and not before. So nothing here waits for longer than LOOK_SECONDS at a time: a
second signal ends a worker whatever the command does.
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
"""While a command runs it is looked so often whether signals came."""

_READ_BYTES: Final = 1 << 16

_COMMAND_CODE: Final = 127


class CommandFailed(PubsubError):
    """The command of a worker ended with another exit code than 0, was ended by a signal, or wrote too much."""

    def __init__(self, command: str, code: int, reason: str = "") -> None:
        self.command, self.code, self.reason = command, code, reason
        super().__init__(command, code, reason)

    def __str__(self) -> str:
        how = f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"
        return f"{self.command}: {self.reason or how}"


def command_handler(command: Sequence[str], seconds: float | None = None) -> Callable[[Request], bytes]:
    """The handler that runs a command for each request.

    Args:
        command: and its arguments.
        seconds: that it may run; None: as long as it likes.

    Raises:
        CallerError: there is no such command.
    """
    if which(command[0]) is None:
        raise CallerError(f"there is no command {command[0]!r} to run")

    def handle(request: Request) -> bytes:
        with TemporaryFile() as given:  # A file, so that a command that does not read its input keeps nobody waiting.
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
    """How long may be waited now; 0 where the time is over."""
    return max(0.0, min(LOOK_SECONDS, ends - time.monotonic()))


def _read(child: subprocess.Popen[bytes], ends: float) -> bytes | None:
    """All that it writes; of more than REPLY_BYTES_MAX at least one byte too many. None: its time was over."""
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
    """Its exit code, once it has ended: it may go on when its output is closed. None: its time was over."""
    while seconds := _look_seconds(ends):
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    return None


def handler_of(command: Sequence[str] | None, seconds: float | None = None) -> Handler:
    """The handler that runs a command for each request, for `seconds` at most; without one, the request is the reply.

    Raises:
        CallerError: there is no such command.
    """
    return command_handler(command, seconds) if command else echo
