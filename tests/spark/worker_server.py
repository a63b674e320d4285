"""The worker server of a test run: it has imported the modules of Spark's Python workers, and forks each worker.

    python -m tests.spark.worker_server LISTENER     with the descriptor of its listening socket

For one query Spark starts up to eight Python programs on the driver's machine: a daemon for each kind of work, and a
runner for each source. Each would import PySpark, PyArrow and this package, which takes most of a second. This server
imports them once. `worker_client` is the program that Spark starts in place of a worker; it sends an order:

    client → server   4 bytes of size, with the descriptors of its standard streams; then a JSON object
    server → client   the worker's process ID, a line; at the worker's end its exit code, a line

The server ends a worker whose client has ended. It ends itself when its standard input is closed, which is when the
test run ends in any way. Its socket is in a directory that only this user can open.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pubsub.spark import workers
from tests.spark import worker_client
from tests.spark.worker_client import HEADER_BYTES, ORDER_BYTES_MAX, PLACE

ROOT: Final = str(Path(__file__).parents[2])
STREAMS: Final = 3
ORDER_SECONDS: Final = 10.0
"""Time within which a client sends its order."""

CLIENTS_MAX: Final = 128
"""Maximum number of clients that wait for the server."""

DESCRIPTORS_MAX: Final = 1 << 20
SEED: Final = "PYTHONHASHSEED"
LOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)
"""Modules of Spark's workers; one that a release of Spark does not have is left out."""

_started: list[subprocess.Popen[bytes]] = []


def write_script(place: Path) -> Path:
    """Write the Python of the workers of tests; return its path."""
    return workers.write_script(place, sys.executable, "-I", "-S", worker_client.__file__)


def start() -> None:
    """Start the server of this process, unless there is one; its place is set in the environment.

    Without a server each worker starts a Python. So an error here ends nothing.
    """
    if os.path.exists(os.environ.get(PLACE, "")):
        return
    with contextlib.suppress(OSError):
        directory = tempfile.mkdtemp(prefix="pubsub-spark-")
        place = os.path.join(directory, "workers")
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(place)
                listener.listen(CLIENTS_MAX)
                _started.append(_popen(listener))
        except OSError:  # For example a path that is too long for a socket.
            shutil.rmtree(directory, ignore_errors=True)
            raise
        os.environ[PLACE] = place


def _popen(listener: socket.socket) -> subprocess.Popen[bytes]:
    # A worker has the seed of PySpark's hashes, and does not buffer its output.
    environment = {**os.environ, SEED: os.environ.get(SEED, "0"), "PYTHONUNBUFFERED": "YES"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        pass_fds=[listener.fileno()],
        start_new_session=True,  # Ctrl-C in a terminal is for the driver.
    )


@dataclass
class Server:
    """Forks workers, as a loop of one thread.

    Args:
        listener: the socket of new clients.
        alive: a descriptor whose end of file ends the server.
    """

    listener: socket.socket
    alive: int
    _workers: dict[int, socket.socket | None] = field(default_factory=dict)
    """By process ID, until the process is reaped; None: its client has ended."""

    def run(self) -> dict[str, Any] | None:
        """Fork workers until the test run ends; in a worker, return its order."""
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken)
        while True:
            clients = {client.fileno(): pid for pid, client in self._workers.items() if client is not None}
            ready = select.select([self.alive, self.listener.fileno(), wake, *clients], [], [])[0]
            if wake in ready:
                os.read(wake, 512)
            for pid in [clients[each] for each in ready if each in clients]:
                self._leave(pid)
            self._reap()
            if self.alive in ready and not os.read(self.alive, 512):
                return None
            if self.listener.fileno() in ready:
                order = self._take()
                if order is not None:
                    return order

    def _leave(self, pid: int) -> None:
        """End the worker of a client that has ended; a client sends nothing after its order."""
        client, self._workers[pid] = self._workers[pid], None
        if client is not None:
            client.close()
        os.kill(pid, signal.SIGTERM)  # It is not reaped, so the process ID is still the worker's.

    def _reap(self) -> None:
        """Send the exit codes of the workers that have ended."""
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            client = self._workers.pop(pid)
            if client is not None:
                with contextlib.suppress(OSError), client:
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    def _take(self) -> dict[str, Any] | None:
        """Take an order and fork; in the worker, return the order. A client without a worker starts one itself."""
        client, _ = self.listener.accept()
        client.settimeout(ORDER_SECONDS)
        streams: list[int] = []
        try:
            order = _order(client, streams)
        except (OSError, ValueError, LookupError, TypeError):
            order = None  # Not an order of ours.
        if order is None:
            client.close()
        elif not (pid := os.fork()):
            for each in (client, self.listener, *self._workers.values()):
                if each is not None:
                    each.detach()
            _become(order, streams)
            return order
        else:
            self._workers[pid] = client
            with contextlib.suppress(OSError):  # The client has ended, which ends the worker.
                client.sendall(b"%d\n" % pid)
        for stream in streams:
            os.close(stream)
        return None


def _order(client: socket.socket, streams: list[int]) -> dict[str, Any] | None:
    """Read an order; add its descriptors to `streams`. None: the order is for another Python.

    Raises:
        OSError, ValueError, LookupError, TypeError: this is no order.
    """
    header, given, _, _ = socket.recv_fds(client, HEADER_BYTES, STREAMS)
    streams += given
    size, text = int.from_bytes(header, "big"), b""
    if len(given) != STREAMS or not 0 < size <= ORDER_BYTES_MAX:
        raise ValueError("no order")
    while len(text) < size:
        chunk = client.recv(size - len(text))
        if not chunk:
            raise ValueError("half an order")
        text += chunk
    order: dict[str, Any] = json.loads(text)
    ours = order["python"] == sys.executable and order["client"] == os.path.realpath(worker_client.__file__)
    return order if ours else None


def _become(order: dict[str, Any], streams: list[int]) -> None:
    """In a worker: be as a process that Spark has started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, each in enumerate(streams):
        os.dup2(each, target)
    os.closerange(STREAMS, DESCRIPTORS_MAX)
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    os.chdir(order["directory"])
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:0] = [order["directory"], *(each for each in given if each not in sys.path and not workers.is_zip(each))]


def main() -> None:
    """Import the modules, and serve."""
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        place = listener.getsockname()
        workers.load(*LOADED)
        order = Server(listener, 0).run()
        if order is None:
            shutil.rmtree(os.path.dirname(place), ignore_errors=True)
            return
        listener.detach()
    workers.run(order["words"])


if __name__ == "__main__":
    main()
