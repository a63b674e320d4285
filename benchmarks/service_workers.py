"""`scripts/bench --workers`: processor time that a worker of a service takes for one request.

A worker of `pubsub.services` and the worker loop of the ZeroMQ Guide (chapter 4) take turns behind the same queue or
broker. A client keeps WINDOW requests under way. The time is of the worker's own thread, and of its whole process with
ZeroMQ's I/O thread, from the request WARM_REQUESTS on. A Titanic worker is a Majordomo worker.

    python -m benchmarks.service_workers ours|guide KIND ADDRESS REQUESTS      one worker: a process of its own
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final, NamedTuple

import zmq

from benchmarks.services import OURS, PATIENCE_SECONDS, WINDOW, free_address
from pubsub import console
from pubsub.errors import Unavailable

KINDS: Final = ("simple", "paranoid", "mdp")

SIDES: Final = ("ours", "guide")

REQUESTS: Final = 3_000
"""Requests that are measured, by one worker."""

WARM_REQUESTS: Final = 500
"""Requests before those."""

BODY: Final = b"x" * 100

_HEADS: Final = {"mdp": [b"", b"MDPC01", b"echo"]}


class Cost(NamedTuple):
    """Processor time of one request, in microseconds.

    Attributes:
        thread_us: of the worker's own thread.
        process_us: of its process.
    """

    thread_us: float
    process_us: float


class Meter:
    """Counts requests, and measures those that come after WARM_REQUESTS.

    Args:
        requests: to measure.
    """

    def __init__(self, requests: int) -> None:
        self._left, self._requests = WARM_REQUESTS, requests
        self._began = (0.0, 0.0)
        self.cost: Cost | None = None

    def take(self) -> bool:
        """Count a request that came; whether it is the last one."""
        self._left -= 1
        if self._left:
            return False
        now = time.thread_time(), time.process_time()
        if self._began == (0.0, 0.0):
            self._began, self._left = now, self._requests
            return False
        thread, process = (1e6 * (end - begun) / self._requests for begun, end in zip(self._began, now, strict=True))
        self.cost = Cost(thread, process)
        return True


# The workers


def ours(kind: str, address: str, meter: Meter) -> None:
    """A worker of `pubsub.services` that echoes."""
    from pubsub.services.handlers import Request
    from pubsub.services.worker import Worker

    def handle(request: Request) -> Any:
        if meter.take():
            worker.stop()
        return request.frames

    worker = Worker("echo", broker=address, kind=kind, handler=handle)
    worker.run()


def guide_simple(address: str, meter: Meter) -> None:
    """The loop of the Guide's spworker."""
    worker = zmq.Context().socket(zmq.REQ)
    worker.connect(address)
    worker.send(b"\x01")
    last = False
    while not last:
        frames = worker.recv_multipart()
        last = meter.take()
        worker.send_multipart(frames)


def guide_paranoid(address: str, meter: Meter) -> None:
    """The loop of the Guide's ppworker."""
    interval, liveness_max = 1.0, 3
    worker = zmq.Context().socket(zmq.DEALER)
    worker.connect(address)
    poller = zmq.Poller()
    poller.register(worker, zmq.POLLIN)
    worker.send(b"\x01")
    liveness, beat_at, last = liveness_max, time.time() + interval, False
    while not last:
        found = dict(poller.poll(int(interval * 1000)))
        if found.get(worker) == zmq.POLLIN:
            frames = worker.recv_multipart()
            if len(frames) == 3:
                last = meter.take()
                worker.send_multipart(frames)
                liveness = liveness_max
            elif frames == [b"\x02"]:
                liveness = liveness_max
        else:
            liveness -= 1
            if not liveness:
                raise Unavailable("bench", address, interval * liveness_max)
        if time.time() > beat_at:
            beat_at = time.time() + interval
            worker.send(b"\x02")


class GuideMajordomo:
    """The Guide's worker API, mdwrkapi.

    Args:
        address: of the broker.
    """

    interval, liveness_max = 2.5, 3

    def __init__(self, address: str) -> None:
        self._worker = zmq.Context().socket(zmq.DEALER)
        self._worker.linger = 1_000
        self._worker.connect(address)
        self._poller = zmq.Poller()
        self._poller.register(self._worker, zmq.POLLIN)
        self._liveness, self._beat_at = self.liveness_max, time.time() + self.interval
        self._reply_to = b""
        self._send(b"\x01", [b"echo"])

    def _send(self, command: bytes, message: list[bytes]) -> None:
        self._worker.send_multipart([b"", b"MDPW01", command, *message])

    def recv(self, reply: list[bytes] | None) -> list[bytes]:
        """Send the reply to the last request; the next request."""
        if reply is not None:
            self._send(b"\x03", [self._reply_to, b"", *reply])
        while True:
            if self._poller.poll(int(self.interval * 1000)):
                message = self._worker.recv_multipart()
                self._liveness = self.liveness_max
                assert message.pop(0) == b""
                assert message.pop(0) == b"MDPW01"
                if message.pop(0) == b"\x02":
                    self._reply_to = message.pop(0)
                    assert message.pop(0) == b""
                    return message
            else:
                self._liveness -= 1
                if not self._liveness:
                    raise Unavailable("bench", "mdp", self.interval * self.liveness_max)
            if time.time() > self._beat_at:
                self._send(b"\x04", [])
                self._beat_at = time.time() + self.interval

    def last(self, reply: list[bytes]) -> None:
        """Send the reply to the last request of all."""
        self._send(b"\x03", [self._reply_to, b"", *reply])


def guide_majordomo(address: str, meter: Meter) -> None:
    """The Guide's mdworker, by its worker API."""
    worker = GuideMajordomo(address)
    reply: list[bytes] | None = None
    while True:
        request = worker.recv(reply)
        reply = request
        if meter.take():
            worker.last(reply)
            return


GUIDE: Final[dict[str, Callable[[str, Meter], None]]] = {
    "simple": guide_simple,
    "paranoid": guide_paranoid,
    "mdp": guide_majordomo,
}


def work(side: str, kind: str, address: str, requests: int) -> Cost:
    """Be a worker until it has answered `requests` requests after the first ones."""
    meter = Meter(requests)
    if side == "guide":
        GUIDE[kind](address, meter)
    else:
        ours(kind, address, meter)
    assert meter.cost is not None
    return meter.cost


# The measurement


def measure(requests: int, reps: int) -> dict[tuple[str, str], list[Cost]]:
    """What each side's worker of each kind takes, `reps` times, in turn.

    Raises:
        Unavailable: no reply came.
    """
    costs: dict[tuple[str, str], list[Cost]] = {(kind, side): [] for kind in KINDS for side in SIDES}
    for _ in range(reps):
        for (kind, side), found in costs.items():
            found.append(_cost(kind, side, requests))
    return costs


def _cost(kind: str, side: str, requests: int) -> Cost:
    front, back = free_address(), free_address()
    if kind == "mdp":
        back, middle = front, ["broker", "--bind", front]
    else:
        middle = ["queue", "--kind", kind, "--frontend", front, "--backend", back]
    worker = [sys.executable, "-m", "benchmarks.service_workers", side, kind, back, str(requests)]
    with _process([sys.executable, "-c", OURS, "service", *middle]) as between, _process(worker) as works:
        try:
            _call(front, kind, WARM_REQUESTS + requests)
            return Cost(*json.loads(works.communicate(timeout=PATIENCE_SECONDS)[0]))
        finally:
            works.kill()
            between.kill()


def _process(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - ours


def _call(address: str, kind: str, requests: int) -> None:
    """Make requests, WINDOW of them under way, until all are answered."""
    message = [*_HEADS.get(kind, [b""]), BODY]
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(address)
        for _ in range(WINDOW):
            sock.send_multipart(message)
        for count in range(requests):
            if not sock.poll(int(PATIENCE_SECONDS * 1000)):
                raise Unavailable("bench", kind, PATIENCE_SECONDS)
            sock.recv_multipart()
            if count + WINDOW < requests:
                sock.send_multipart(message)


def show(costs: dict[tuple[str, str], list[Cost]], *, as_json: bool) -> None:
    """Print medians, and the ratio of the two sides within a turn."""
    if as_json:
        facts = [{"kind": kind, "side": side, "costs": found} for (kind, side), found in costs.items()]
        console.print_json({"workers": facts})
        return
    table = console.table("kind", "thread, µs", "the Guide's", "ratio", "process, µs", "the Guide's")
    for kind in KINDS:
        here, there = costs[kind, "ours"], costs[kind, "guide"]
        ratio = median(one.thread_us / other.thread_us for one, other in zip(here, there, strict=True))
        figures = [median(cost[n] for cost in side) for n in (0, 1) for side in (here, there)]
        cells = [f"{figure:.1f}" for figure in figures]
        table.add_row(kind, cells[0], cells[1], f"{ratio:.2f}", cells[2], cells[3])
    console.print_table(table)


if __name__ == "__main__":
    side, kind, address, requests = sys.argv[1:]
    sys.stdout.write(json.dumps(work(side, kind, address, int(requests))))
