"""`scripts/bench --services`: requests a second through the Majordomo broker, by one client.

Pipelined, and one at a time; with 1 and 4 workers of `pubsub service work`. Beside it, in the same run, a bare ROUTER
to ROUTER forwarder in Python with one worker (what two hops cost at all), and with `--rival DIR` the Guide's Python
broker and workers from that directory (`mdbroker.py`, `mdwrkapi.py` of booksbyus/zguide), which are not part of this
project.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import zmq

from pubsub import console
from pubsub.errors import ConfigurationError, Unavailable

WINDOW: Final = 100
"""Requests under way, pipelined."""

SIZES: Final = (100, 10_240)

PATIENCE_SECONDS: Final = 30.0
"""For the first reply, and for each further one."""

_HEAD: Final = [b"", b"MDPC01", b"echo"]

OURS: Final = "from pubsub.cli import main; main()"
"""The command `pubsub`, for `python -c`."""

_BROKER = "import sys; sys.path.insert(0, sys.argv[1]); import mdbroker as m\n"
_BROKER += "broker = m.MajorDomoBroker(False); broker.bind(sys.argv[2]); broker.mediate()"

_WORKER = "import sys; sys.path.insert(0, sys.argv[1]); import mdwrkapi as m\n"
_WORKER += (
    "worker, reply = m.MajorDomoWorker(sys.argv[2], b'echo', False), None\nwhile True: reply = worker.recv(reply)"
)

_FORWARDER = """
import sys, zmq
context = zmq.Context()
front, back = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
front.bind(sys.argv[1])
back.bind(sys.argv[2])
worker = back.recv_multipart()[0]
poller = zmq.Poller()
poller.register(front, zmq.POLLIN)
poller.register(back, zmq.POLLIN)
while True:
    for source, _ in poller.poll():
        frames = source.recv_multipart()
        if source is front:
            back.send_multipart([worker, *frames])
        else:
            front.send_multipart(frames[1:])
"""

_ECHO = """
import sys, zmq
worker = zmq.Context().socket(zmq.DEALER)
worker.connect(sys.argv[1])
worker.send(b"ready")
while True:
    worker.send_multipart(worker.recv_multipart())
"""


class Case(NamedTuple):
    """What is measured.

    Attributes:
        through: "broker", "rival" or "forwarder".
        workers: that answer.
        window: requests under way.
        size: bytes of a body.
    """

    through: str
    workers: int
    window: int
    size: int


def cases(rival: bool) -> list[Case]:
    """All that is measured, each beside what it is compared with."""
    found = []
    for size in SIZES:
        for workers, window in ((1, WINDOW), (4, WINDOW), (1, 1)):
            found.append(Case("broker", workers, window, size))
            if rival:
                found.append(Case("rival", workers, window, size))
        found.append(Case("forwarder", 1, 1, size))
    return found


def measure(secs: float, reps: int, rival: Path | None) -> dict[Case, list[float]]:
    """Requests a second of each case, `reps` times, interleaved.

    Raises:
        ConfigurationError: the rival is not in its directory.
        Unavailable: no reply came.
    """
    if rival is not None and not all((rival / name).is_file() for name in ("mdbroker.py", "mdwrkapi.py")):
        raise ConfigurationError(f"--rival {rival}: there are no mdbroker.py and mdwrkapi.py")
    rates: dict[Case, list[float]] = {case: [] for case in cases(rival is not None)}
    for _ in range(reps):
        for case, found in rates.items():
            with _running(case, rival) as address:
                found.append(_rate(address, case, secs))
    return rates


@contextmanager
def _running(case: Case, rival: Path | None) -> Iterator[str]:
    """The processes of a case; where a client calls."""
    front, back = free_address(), free_address()
    commands: list[list[str]]
    if case.through == "forwarder":
        commands = [[_FORWARDER, front, back], [_ECHO, back]]
    elif case.through == "rival":
        commands = [[_BROKER, str(rival), front], *[[_WORKER, str(rival), front]] * case.workers]
    else:
        worker = [OURS, "service", "work", "echo", "--broker", front]
        commands = [[OURS, "service", "broker", "--bind", front], *[worker] * case.workers]
    processes = []
    try:
        for code, *arguments in commands:
            command = [sys.executable, "-c", code, *arguments]
            processes.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
            )
        yield front
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_address() -> str:
    """A port of this host at which nobody listens."""
    with zmq.Context() as context, context.socket(zmq.REP) as sock:
        return f"tcp://127.0.0.1:{sock.bind_to_random_port('tcp://127.0.0.1')}"


def _rate(address: str, case: Case, secs: float) -> float:
    """Requests a second of one client, once all is up."""
    body = [*_HEAD, b"x" * case.size]
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(address)
        sock.send_multipart(body)
        _await(sock, case)
        time.sleep(secs)  # The other workers come too; a second of peace for the processes that started.
        for _ in range(case.window):
            sock.send_multipart(body)
        began, count = time.monotonic(), 0
        while (now := time.monotonic()) < began + secs:
            _await(sock, case)
            sock.send_multipart(body)
            count += 1
        return count / (now - began)


def _await(sock: zmq.Socket[bytes], case: Case) -> None:
    if not sock.poll(int(PATIENCE_SECONDS * 1000)):
        raise Unavailable("bench", case.through, PATIENCE_SECONDS)
    sock.recv_multipart()


def show(rates: dict[Case, Sequence[float]] | dict[Case, list[float]], *, as_json: bool) -> None:
    """Print medians: a line a case, and how many times the broker's is of what it is compared with."""
    middle = {case: median(found) for case, found in rates.items()}
    if as_json:
        facts = [{**case._asdict(), "rates": list(map(round, found))} for case, found in rates.items()]
        console.print_json({"services": facts})
        return
    table = console.table("through", "workers", "under way", "bytes", "requests a second", "the broker's")
    for case, rate in middle.items():
        times = middle[case._replace(through="broker")] / rate
        compared = "" if case.through == "broker" else f"{times:.2f} times"
        table.add_row(case.through, str(case.workers), str(case.window), str(case.size), f"{rate:,.0f}", compared)
    console.print_table(table)
