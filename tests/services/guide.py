"""The Guide's programs as its C versions are written, on raw sockets: what they take their peers' messages for."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import zmq

POLL_MS = 20


class Guided:
    """A program of the Guide on a thread; a context manager. Subclasses have `turn`."""

    def __init__(self, sockets: int = 1) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._ended = threading.Event()
        self.sockets = [self._context.socket(zmq.ROUTER) for _ in range(sockets)]
        self.addresses = []
        for sock in self.sockets:
            sock.linger = 0
            self.addresses.append(f"tcp://127.0.0.1:{sock.bind_to_random_port('tcp://127.0.0.1')}")
        self._thread = threading.Thread(target=self._go_round, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(30.0)
        self._context.destroy(0)

    def _go_round(self) -> None:
        while not self._ended.is_set():
            self.turn()

    def turn(self) -> None:
        """Look once at the sockets, for POLL_MS at most."""


class SpQueue(Guided):
    """spqueue.c: a message of a worker whose first byte, behind its own address, is that of READY is a READY.

    Attributes:
        clients, workers: the addresses to connect to.
        peers: the routing IDs of all who spoke.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.front, self.back = self.sockets
        self.clients, self.workers = self.addresses
        self.peers: set[bytes] = set()
        self._free: list[bytes] = []

    def turn(self) -> None:
        if self.back.poll(POLL_MS):
            worker, empty, *frames = self.back.recv_multipart()
            self.peers.add(worker)
            assert not empty
            self._free.append(worker)
            if frames[0][:1] != b"\x01":  # memcmp (zframe_data (frame), WORKER_READY, 1)
                self.front.send_multipart(frames)
        if self._free and self.front.poll(POLL_MS if not self.back.poll(0) else 0):
            frames = self.front.recv_multipart()
            self.peers.add(frames[0])
            self.back.send_multipart([self._free.pop(0), b"", *frames])
