"""A command as a handler: its input, its output, and signals while it runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import CallerError
from pubsub.services import command
from pubsub.services.command import CommandFailed, command_handler, handler_of
from pubsub.services.worker import Request, echo
from tests.faults.cluster import PATIENCE_SECONDS, until


class Strike(BaseException):
    """What the handler of a signal raises."""


def request(body: bytes = b"") -> Request:
    return Request([body], "", lambda frames: None)


def run(*words: str, body: bytes = b"") -> bytes:
    return command_handler(words)(request(body))


@contextmanager
def striking() -> Iterator[None]:
    """SIGUSR1 raises in this thread, the main one."""

    def strike(*_: Any) -> None:
        raise Strike

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_command_is_given_the_request_and_gives_the_reply() -> None:
    assert run("tr", "a-z", "A-Z", body=b"hello") == b"HELLO"
    assert run("cat", body=bytes(300_000)) == bytes(300_000)
    assert run("true", body=b"not read") == b""
    assert handler_of(None) is echo


def test_a_failed_command_reports_the_reason() -> None:
    with pytest.raises(CommandFailed, match="sh: exit code 3"):
        run("sh", "-c", "exit 3")
    with pytest.raises(CommandFailed, match="sh: ended by signal 9"):
        run("sh", "-c", "kill -9 $$")
    with pytest.raises(CallerError, match="no command 'no-such-command'"):
        command_handler(["no-such-command"])


def test_a_command_that_writes_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "REPLY_BYTES_MAX", 100_000)
    with pytest.raises(CommandFailed, match="wrote more than"):
        run("cat", "/dev/zero")


def test_a_command_that_closes_its_output_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_SECONDS", 0.01)
    with pytest.raises(CommandFailed, match="exit code 4"):
        run("sh", "-c", "exec >&-; sleep 0.1; exit 4")


@pytest.mark.parametrize("closing", ["", "exec >/dev/null; "])
def test_a_signal_taken_by_another_thread_ends_a_command_too(tmp_path: Path, closing: str) -> None:
    """Which thread a signal is handed to is the kernel's to choose; a system call of this one does not end by it."""
    go, main, over = tmp_path / "go", threading.get_ident(), threading.Event()
    os.mkfifo(go)
    in_time: list[bool] = []

    def waits() -> bool:
        frame = sys._current_frames()[main]
        while frame is not None and frame.f_code is not command._output.__code__:
            frame = frame.f_back  # type: ignore[assignment]
        return frame is not None

    def strike() -> None:
        with go.open("w"):  # Opens once the command reads.
            until(waits, "the command is waited for")
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            in_time.append(over.wait(PATIENCE_SECONDS))

    thread = threading.Thread(target=strike)
    with striking():
        thread.start()
        try:
            with pytest.raises(Strike):
                run("sh", "-c", f"{closing}exec cat {go}")
        finally:
            over.set()
            thread.join()
    assert in_time == [True]
