"""A command as a handler: the request on its standard input, the reply from its standard output.

What it says on standard error goes where ours goes. With another exit code than 0 it has failed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from shutil import which
from tempfile import TemporaryFile
from typing import Final

from pubsub.errors import CallerError, PubsubError
from pubsub.services.calling import REPLY_BYTES_MAX
from pubsub.services.worker import Handler, Request, echo

_COMMAND_CODE: Final = 127


class CommandFailed(PubsubError):
    """The command of a worker ended with another exit code than 0, was ended by a signal, or wrote too much."""

    def __init__(self, command: str, code: int, reason: str = "") -> None:
        self.command, self.code, self.reason = command, code, reason
        super().__init__(command, code, reason)

    def __str__(self) -> str:
        how = f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"
        return f"{self.command}: {self.reason or how}"


def command_handler(command: Sequence[str]) -> Callable[[Request], bytes]:
    """The handler that runs a command for each request.

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
                child = subprocess.Popen(list(command), stdin=given, stdout=subprocess.PIPE)  # noqa: S603 - the user's
            except OSError as error:
                raise CommandFailed(command[0], _COMMAND_CODE, error.strerror or str(error)) from None
            with child:
                return _output(command[0], child)

    return handle


def _output(name: str, child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    try:
        output = child.stdout.read(REPLY_BYTES_MAX + 1)
        if len(output) > REPLY_BYTES_MAX:
            raise CommandFailed(name, 0, f"it wrote more than REPLY_BYTES_MAX = {REPLY_BYTES_MAX:,} bytes")
        code = child.wait()
    except BaseException:
        child.kill()
        raise
    if code != 0:
        raise CommandFailed(name, code)
    return output


def handler_of(command: Sequence[str] | None) -> Handler:
    """The handler that runs a command for each request; without one, the request is the reply.

    Raises:
        CallerError: there is no such command.
    """
    return command_handler(command) if command else echo
