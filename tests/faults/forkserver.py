"""Processes of tests, forked off one that has loaded their imports: none costs a start of Python.

A forked process is one like any other, with its own store and sockets, and is killed and waited for as one: it runs
the same as `python -m MODULE WORDS…`, from there on where all imports are done. A test has threads, and may not fork
itself; so a process with one thread does, which is asked over a socket and tells how each of its children ended.

`forking` switches it on, for a whole run of tests; `cluster.Process` asks for it, and `run` for a command that ends.
A test of the start itself, as most of tests/cli, starts cold, as the demo and the soaks start all.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
HEADER_BYTES: Final = 4
DESCRIPTORS: Final = 4
"""That come with an order: standard input, output and errors of the child, and where it is told how it ended."""

FILES_MAX: Final = 4096
LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)
"""A child has these as its orderer has them then."""

FOLDERS: Final = ("tests.faults.", "tests.services.", "tests.postgres.rounds.")
COMMANDS: Final = {
    "proxy": ("pubsub.proxy.commands", "pubsub.proxy.process"),
    "server": ("pubsub.cli.server_group", "pubsub.cli.server", "pubsub.server.process", "pubsub.server.metrics"),
    "gateway": ("pubsub.cli.gateway", "pubsub.cli.gateway_operations", "pubsub.cli.peeking", "pubsub.gateway.process"),
    "service": ("pubsub.services.commands", "pubsub.services.majordomo", "pubsub.services.titanic", "pubsub.services"),
    "relay": ("pubsub.client.relay_commands", "pubsub.client", "pubsub.client.relaying.running"),
    "topic": ("pubsub.cli.topic", "pubsub.client", "pubsub.cli.reaching"),
    "client": ("pubsub.client.commands", "pubsub.client.call_commands", "pubsub.client", "pubsub.client.export"),
    "http": ("pubsub.http.commands", "pubsub.http", "anyio._backends._asyncio", "httpcore2"),
    "status": ("pubsub.cli.status", "pubsub.cli.reports", "pubsub.cli.reaching", "pubsub.messenger"),
    "top": ("pubsub.cli.top", "pubsub.cli.reports", "pubsub.cli.reaching", "pubsub.messenger"),
}
"""The word behind `pubsub` -> the modules loaded for it, once, with all that a package gives by its name."""

ALWAYS: Final = ("pubsub.cli.app", "typer._adapters", "importlib.metadata", "platformdirs.unix", "encodings.idna")
"""Modules that each of them loads, sooner or later."""


Ended = subprocess.CompletedProcess[bytes]


class Child:
    """A process that was forked: as much of `subprocess.Popen` as tests use."""

    def __init__(self, told: int, stdin: int) -> None:
        self._told, self._text = told, b""
        self._lock = threading.Lock()
        self.stdin = os.fdopen(stdin, "wb", buffering=0)
        self.returncode: int | None = None
        while b"\n" not in self._text:
            self._read()
        first, _, self._text = self._text.partition(b"\n")
        self.pid = int(first)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._told)

    def _read(self) -> None:
        chunk = os.read(self._told, 64)
        assert chunk, "the fork server has ended"
        self._text += chunk

    def fileno(self) -> int:
        """Where it is told how it ended, for `select`."""
        return self._told

    def poll(self) -> int | None:
        """Its exit code, a signal as a negative number; None: it runs."""
        return self._ended(0.0)

    def _ended(self, seconds: float) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
                while b"\n" not in self._text:
                    self._read()
                self.returncode = int(self._text)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self._ended(min(0.05, max(0.0, deadline - time.monotonic())))) is None:
            if timeout is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, which: int) -> None:
        """Where it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


class ForkServer:
    """The process that forks, as a test sees it; it is started with the first child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    @staticmethod
    def takes(command: Sequence[str]) -> bool:
        """Whether these words, behind `python`, are among those that it starts."""
        if len(command) < 3 or command[0] != "-m":
            return False
        return command[2] in COMMANDS if command[1] == "pubsub" else command[1].startswith(FOLDERS)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        errors: int,
        directory: Path = ROOT,
        *,
        stdin: int | None = None,
    ) -> Child:
        """Starts `python COMMAND…`.

        Args:
            environment: all of its variables.
            output, errors: descriptors of its standard output and standard error.
            directory: where it runs.
            stdin: the descriptor of its standard input; None: the child's `stdin` is.
        """
        limits = [resource.getrlimit(which) for which in LIMITS]
        _, module, *words = command
        facts = {"module": module, "words": words, "environment": dict(environment), "limits": limits}
        order = json.dumps(facts | {"directory": str(directory)})
        (piped, to_stdin), (told, tell) = os.pipe(), os.pipe()
        try:
            with self._lock:
                orders = self._started()
                header = len(order.encode()).to_bytes(HEADER_BYTES, "big")
                socket.send_fds(orders, [header], [piped if stdin is None else stdin, output, errors, tell])
                orders.sendall(order.encode())
        finally:
            os.close(piped)
            os.close(tell)
        return Child(told, to_stdin)

    def _started(self) -> socket.socket:
        if self._orders is None:
            self._orders, theirs = socket.socketpair()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
        return self._orders

    def close(self) -> None:
        """End it; its children are not ended."""
        if self._orders is not None and self._process is not None:
            self._orders.close()
            self._process.wait()


_current: list[ForkServer] = []


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Fork the processes that are started meanwhile."""
    server = ForkServer()
    _current.append(server)
    try:
        yield
    finally:
        _current.remove(server)
        server.close()


def run(
    *words: object,
    stdin: bytes = b"",
    directory: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    seconds: float = 120.0,
) -> Ended:
    """Runs `pubsub WORDS…` to its end, forked where the fork server loads that command.

    Args:
        stdin: its standard input, at whose end it finds it closed.
        directory: where it runs.
        variables: more of its environment, which is that of the test.
        seconds: after which it is killed.

    Raises:
        subprocess.TimeoutExpired: it was killed.
    """
    command = ["-m", "pubsub", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    server = current()
    if server is None or not server.takes(command):
        return subprocess.run(
            [sys.executable, *command], input=stdin, capture_output=True, check=False, cwd=directory, env=environment,
            timeout=seconds,
        )  # fmt: skip
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = server.start(command, environment, output.fileno(), errors.fileno(), directory)
        try:
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(stdin)
            code = child.wait(seconds)
        finally:
            child.kill()
        output.seek(0)
        errors.seek(0)
        return Ended(command, code, output.read(), errors.read())


def current() -> ForkServer | None:
    """Of the innermost `forking`; None: processes are started."""
    return _current[-1] if _current else None


# The process


class Children:
    """Those that run, by their IDs, and where it is told how each ended."""

    def __init__(self) -> None:
        self._tell: dict[int, int] = {}

    def add(self, pid: int, tell: int) -> None:
        self._tell[pid] = tell
        os.write(tell, b"%d\n" % pid)

    def reap(self) -> None:
        """Tell of all that have ended."""
        while self._tell:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            tell = self._tell.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # Nobody wants to know any more.
                os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(tell)


def load(module: str, words: Sequence[str]) -> None:
    """Import what a command will, unless that is done; nothing of it is looked at by a collection again."""
    needed = (*ALWAYS, *COMMANDS[words[0]]) if module == "pubsub" else (module,)
    if all(each in _loaded for each in needed):
        return
    for each in needed:
        with contextlib.suppress(ImportError):  # The child will say so.
            loaded = importlib.import_module(each)
            for name in getattr(loaded, "__all__", ()):  # Most of them are imported when they are first asked for.
                getattr(loaded, name, None)
        _loaded.add(each)
        if each == module:
            sys.modules.pop(each, None)  # It will be run, under the name __main__.
    gc.collect()
    gc.freeze()


_loaded: set[str] = set()


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """Forks what is ordered, until nobody orders any more; in a child, at once, its work."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    children = Children()
    while True:
        ready: list[Any] = select.select([orders, wake], [], [])[0]
        if wake in ready:
            os.read(wake, 512)
        children.reap()
        if orders not in ready:
            continue
        header, given, _, _ = socket.recv_fds(orders, HEADER_BYTES, DESCRIPTORS)
        if not header:
            return None
        order: dict[str, Any] = json.loads(_exactly(orders, int.from_bytes(header, "big")))
        load(order["module"], order["words"])
        pid = os.fork()
        if not pid:
            orders.detach()
            _become(order, given)
            return order
        children.add(pid, given[-1])
        for each in given[:-1]:
            os.close(each)


def _exactly(orders: socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        whole += orders.recv(size - len(whole))
    return whole


def _become(order: dict[str, Any], given: Sequence[int]) -> None:
    """In a child: be as a process that was just started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, each in enumerate(given[:-1]):
        os.dup2(each, target)
    os.closerange(3, FILES_MAX)
    for which, limit in zip(LIMITS, order["limits"], strict=True):
        resource.setrlimit(which, tuple(limit))
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    sys.argv = [order["module"], *order["words"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    _order = serve(socket.socket(fileno=int(sys.argv[1])))
    if _order is not None:
        runpy.run_module(_order["module"], run_name="__main__", alter_sys=True)
