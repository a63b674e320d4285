"""The start of a command: signals during the start, and commands that cannot be started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pubsub.base.children import started


class Strike(BaseException):
    """What the handler of a signal raises."""


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def strike(*_: Any) -> None:
    raise Strike


@pytest.fixture
def striking(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The commands that run, of each of which nobody knows yet when SIGTERM comes."""
    running: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        running.append(start(*arguments, **named))
        os.kill(os.getpid(), signal.SIGTERM)
        return running[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return running


def test_a_raising_signal_during_the_start_of_a_command_ends_the_command(
    striking: list[subprocess.Popen[bytes]],
) -> None:
    with handled(signal.SIGTERM, strike):
        with pytest.raises(Strike):
            started(["sleep", "600"])
        assert signal.getsignal(signal.SIGTERM) is strike
    assert [child.returncode for child in striking] == [-signal.SIGKILL]


def test_a_signal_without_an_exception_is_handled_once_the_command_runs(
    striking: list[subprocess.Popen[bytes]],
) -> None:
    seen: list[list[int]] = []
    with handled(signal.SIGTERM, lambda number, _: seen.append([number, len(striking)])), started(["true"]) as child:
        assert child.wait() == 0
    assert seen == [[signal.SIGTERM, 1]]


def test_started_returns_and_raises_the_same_as_popen() -> None:
    for _ in range(2):
        with started(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.communicate(b"x") == (b"x", None)
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(FileNotFoundError):
            started(["no-such-command"])
        assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_starts_commands_too() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(started(["true"]).wait()))
    thread.start()
    thread.join()
    assert codes == [0]
