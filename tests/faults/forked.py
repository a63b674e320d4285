"""Processes that are forked off this one instead of started, so that a death costs no start of Python.

What is forked is a process like any other, with its own store and sockets; it is killed and waited for as one. Only a
process with one thread may fork: rounds by the hundred do (`call_rounds`), pytest does not.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, cast

from pubsub.cli import main as pubsub
from tests.faults.cluster import Cluster, Process


@cache
def _load() -> None:
    """What the processes would load, each for itself; nothing of it is looked at by a collection again."""
    for module in ("pubsub.proxy.process", "pubsub.server.process", "pubsub.cli.app"):
        importlib.import_module(module)
    gc.freeze()


class Child:
    """A child that was forked: as much of `subprocess.Popen` as `cluster` uses."""

    def __init__(self, pid: int, stdin: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = os.fdopen(stdin, "wb", buffering=0)

    def poll(self) -> int | None:
        """Its exit code, a signal as a negative number; None: it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """Its exit code, once it has ended."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            time.sleep(0.002)
        return code

    def send_signal(self, which: int) -> None:
        """Where it runs."""
        if self.poll() is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkedProcess(Process):
    """One whose command is `-m pubsub WORDS…` or `-m MODULE FACTS`; the module's `main` is called in a child."""

    def start(self, *extra: str) -> Process:
        """Forks it."""
        assert threading.active_count() == 1, "a process with threads must not fork"
        assert self.popen is None or self.popen.poll() is not None, f"{self.name} is running"
        self._starts += 1
        self.output = self._directory / f"{self.name}.{self._starts}.out"
        self.errors = self._directory / f"{self.name}.{self._starts}.err"
        _, module, *words = self.command
        _load()
        main = pubsub if module == "pubsub" else importlib.import_module(module).main
        given = [*words, *extra] if module == "pubsub" else json.loads(words[0])
        self.output.touch()
        self.errors.touch()
        if self.popen is not None and self.popen.stdin is not None:
            self.popen.stdin.close()
        read, write = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            os.close(write)
            self._child(main, given, read)
        os.close(read)
        self.popen = cast(Any, Child(pid, write))
        return self

    def _child(self, main: Callable[[Any], int | None], given: Any, stdin: int) -> NoReturn:
        code = 1
        try:
            flags = os.O_WRONLY | os.O_APPEND
            for source, target in ((stdin, 0), (os.open(self.output, flags), 1), (os.open(self.errors, flags), 2)):
                os.dup2(source, target)
            sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
            sys.stderr = os.fdopen(2, "w", buffering=1)
            code = main(given) or 0
        except BaseException:  # noqa: BLE001 - it is told, and this process ends.
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)


class Forking(Cluster):
    """A cluster whose processes are forked."""

    def process(self, name: str, *command: str) -> Process:
        """A process that is ended with the cluster; it is not started."""
        made = ForkedProcess(name, self.directory, command)
        self.processes.append(made)
        return made
