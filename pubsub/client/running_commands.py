"""Run a command for each message, and pass signals on to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import which
from tempfile import TemporaryFile
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

from pubsub.base.children import end, started
from pubsub.client.core.outcomes import Later, NotBegun, Reject
from pubsub.client.message_fields import metadata_fields
from pubsub.errors import CallerError, HandlerMisused

if TYPE_CHECKING:
    from pubsub.client import Message, Transaction

EXIT_REJECT: Final = os.EX_DATAERR
"""Exit code of a command that rejects its message: 65."""

EXIT_LATER: Final = os.EX_TEMPFAIL
"""Exit code of a command that puts its message off: 75."""

KILL_SECONDS: Final = 10.0
"""Time for a command to end after SIGTERM, because it ran for too long. Then it is killed."""

LOOK_SECONDS: Final = 0.05
"""Interval at which signals, the time limit and the end of a command are noticed."""

VARIABLE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a key in its variable; a longer key is left out, since the system limits the environment."""


class CommandFailed(Exception):
    """The command failed; the attempt counts, and the message comes again."""


class Stopped(NotBegun, BaseException):
    """A signal asked to stop before the command of a message began; no attempt counts."""


class CommandNotStarted(NotBegun, HandlerMisused):
    """The command cannot be run; no attempt counts."""


class Commands:
    """The commands that run at present, one for each message in hand.

    Each runs in a process group of its own, so that a signal reaches all its processes, and each signal once.

    Args:
        words: the command and its arguments.
        seconds: time limit of one run; None: no limit.
        later_seconds: time until a message comes again after exit code 75.
        group: the consumer group, for the command's environment; "": none.

    Raises:
        CallerError: the command does not exist, or may not be run.

    Attributes:
        stopping: the number of the signal that asked to stop; 0: none did.
        ended: runs that ended with 0, EXIT_LATER or EXIT_REJECT.
    """

    def __init__(self, words: Sequence[str], seconds: float | None, later_seconds: float, group: str) -> None:
        if which(words[0]) is None:
            raise CallerError(f"{words[0]} cannot be run: there is no such program, or it is not executable")
        self._words, self._seconds, self._later, self._group = list(words), seconds, later_seconds, group
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock: Final = Lock()
        self.stopping = self.ended = 0
        self._killed = False

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Pass SIGTERM and SIGINT on to the commands while the block runs. A second signal kills them."""
        if current_thread() is not main_thread():
            yield  # A test calls from a thread of its own, and Python delivers no signal there.
            return
        before = {number: signal.signal(number, self._signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for child in list(self._running):
                end(child, group=True)

    def _signal(self, number: int, _: object) -> None:
        if self.stopping:
            self._killed = True
            for child in list(self._running):  # Before the exception: a call with threads waits for its handlers.
                end(child, group=True)
            raise KeyboardInterrupt
        self.stopping = number
        for child in list(self._running):
            _pass_on(child, number)

    def handle(self, message: Message, _: Transaction) -> None:
        """Run the command for a message.

        Raises:
            Later: it ended with 75, or by the signal that asked to stop.
            Reject: it ended with 65.
            CommandFailed: it ended with another code, or ran for too long.
            CommandNotStarted: it cannot be run; no attempt counts.
            Stopped: a signal asked to stop, so it was not run.
        """
        if self.stopping:
            raise Stopped
        child = self._start(message)
        self._running.add(child)
        try:
            with child:
                try:
                    if self.stopping:  # The signal came before the command was among those that run.
                        _pass_on(child, self.stopping)
                    code = self._ended(child)
                except BaseException:
                    end(child, group=True)
                    raise
        finally:
            self._running.discard(child)
        self._judge(code)

    def _start(self, message: Message) -> subprocess.Popen[bytes]:
        try:
            with TemporaryFile() as given:
                given.write(message.body)
                given.seek(0)
                told = os.environ | environment(message, self._group)
                return started(self._words, env=told, stdin=given, process_group=0)
        except (OSError, ValueError) as error:
            raise CommandNotStarted(f"{self._words[0]} cannot be run: {error}") from None

    def _ended(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for a command and return its exit code, negative for a signal.

        Raises:
            CommandFailed: it ran for longer than the limit.
        """
        ends = float("inf") if self._seconds is None else time.monotonic() + self._seconds
        code = _wait(child, ends)
        if code is not None:
            return code
        _pass_on(child, signal.SIGTERM)
        if _wait(child, time.monotonic() + KILL_SECONDS) is None:
            end(child, group=True)
        raise CommandFailed(f"{self._words[0]} ran for longer than {self._seconds:g} s and was ended")

    def _judge(self, code: int) -> None:
        name = self._words[0]
        if code in {0, EXIT_LATER, EXIT_REJECT}:
            with self._lock:
                self.ended += 1
        if code == 0:
            return
        if self._killed or (self.stopping and code in {-self.stopping, 128 + self.stopping}):
            raise Later(0)
        if code == EXIT_LATER:
            raise Later(self._later)
        if code == EXIT_REJECT:
            raise Reject(f"{name} ended with {code}")
        said = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise CommandFailed(f"{name} {said}")


def _wait(child: subprocess.Popen[bytes], until: float) -> int | None:
    """Wait for a command until a time; return its exit code, or None.

    A signal that arrives just before a blocking system call is handled only after that call returns. So no wait is
    longer than LOOK_SECONDS.
    """
    while (left := until - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(min(left, LOOK_SECONDS))
    return child.poll()


def _pass_on(child: subprocess.Popen[bytes], number: int) -> None:
    if child.returncode is None:  # Its ID cannot be reused before it is waited for.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


def environment(message: Message, group: str) -> dict[str, str]:
    """Return the variables that describe a message to its command.

    Args:
        group: the consumer group; "": none.
    """
    told: dict[str, Any] = {
        "PUBSUB_MESSAGE": message.id,
        "PUBSUB_MESSAGE_TOPIC": message.topic,
        "PUBSUB_MESSAGE_GROUP": group,
        "PUBSUB_MESSAGE_PUBLISHER": message.publisher,
        "PUBSUB_MESSAGE_COUNTER": message.counter,
        "PUBSUB_MESSAGE_STAMP": message.stamp,
        "PUBSUB_MESSAGE_ATTEMPTS": message.attempts,
        "PUBSUB_MESSAGE_DOUBTFUL": "1" if message.doubtful else "",
    }
    if message.part is not None:
        told["PUBSUB_MESSAGE_PART"] = message.part
    if len(message.key) <= VARIABLE_BYTES_MAX and b"\0" not in message.key:
        told["PUBSUB_MESSAGE_KEY"] = os.fsdecode(message.key)
    headers = metadata_fields(b"", message.headers)
    told["PUBSUB_MESSAGE_HEADERS"] = json.dumps(headers.get("headers", {}))
    if "headers_base64" in headers:
        told["PUBSUB_MESSAGE_HEADERS_BASE64"] = json.dumps(headers["headers_base64"])
    return {name: str(value) for name, value in told.items()}
