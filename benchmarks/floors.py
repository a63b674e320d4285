"""What this machine can do at all, measured in the same seconds as what is compared with it.

* `append`: 4 KiB appended to a file and fdatasync, which no durable answer can come before.
* `echo`: a message through a forwarding proxy to a process that sends it back: bare pyzmq, four processes' worth of
  wake-ups and nothing else. With many records a message, and a window of messages in flight, it is a rate.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import zmq

from benchmarks.worker import Worker
from pubsub.cli.bench.floors import Disk, percentile
from pubsub.errors import Unavailable

WINDOW: Final = 16
"""Messages in flight where a rate is measured; a client's window of batches is the same."""


class Floors(Disk):
    """A forwarding proxy and an echo, in processes of their own; a context manager.

    Args:
        directory: where appends are measured.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._workers: list[Worker] = []
        self._context = zmq.Context()

    def __enter__(self) -> Floors:
        proxy = Worker("forward")
        self._workers.append(proxy)
        clients, servers = proxy.said()
        self._workers.append(Worker("echo", servers))
        self._workers[1].said()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.linger = 0
        self._dealer.connect(clients)
        self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.destroy(0)
        for worker in self._workers:
            worker.__exit__(None, None, None)
        super().__exit__(*error)

    def _answer(self) -> None:
        """One echo, however long the connections take."""
        self._dealer.send_multipart([b"0", b""])
        self._receive()

    def _receive(self) -> None:
        if not self._dealer.poll(10_000):
            raise Unavailable("echo", "the floor", 10.0, "the echo does not answer")
        self._dealer.recv_multipart(copy=False)

    def echo(self, size: int, secs: float) -> float:
        """Microseconds of an echo of `size` bytes, the median."""
        taken: list[float] = []
        frames = [b"-1", bytes(size)]
        end = time.perf_counter() + secs
        while not taken or time.perf_counter() < end:
            begun = time.perf_counter()
            self._dealer.send_multipart(frames)
            self._receive()
            taken.append(time.perf_counter() - begun)
        return percentile(taken, 0.5) * 1e6

    def rate(self, sent: int, answered: int, secs: float) -> float:
        """Messages a second of `sent` bytes, each answered with `answered` bytes, WINDOW of them in flight."""
        frames = [b"%d" % answered, bytes(sent)]
        copy = sent < 16_384
        flying = done = 0
        begun = time.perf_counter()
        while not done or time.perf_counter() < begun + secs:
            while flying < WINDOW:
                self._dealer.send_multipart(frames, copy=copy)
                flying += 1
            self._receive()
            flying, done = flying - 1, done + 1
        taken = time.perf_counter() - begun
        for _ in range(flying):
            self._receive()
        return done / taken

    # In the units of what is compared with them

    def latency(self, size: int, secs: float) -> float:
        """Microseconds that a durable answer takes at least: an echo and an append."""
        return self.echo(size, secs * 0.7) + self.append(secs * 0.3)

    def puts(self, size: int, batch: int, secs: float) -> float:
        """Records a second, `batch` of them a message, each message answered shortly."""
        return batch * self.rate(size * batch, 0, secs)

    def gets(self, size: int, batch: int, secs: float) -> float:
        """Records a second, `batch` of them in each answer."""
        return batch * self.rate(0, size * batch, secs)
