"""The Guide's programs as its C versions are written, on raw sockets: their reading of their peers' messages."""

from __future__ import annotations

import threading
import time
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


class MdBroker(Guided):
    """mdbroker.c: heartbeats go to idle workers only, only those are given up, and of `mmi` it knows one service.

    Attributes:
        address: to connect to.
    """

    HEARTBEAT_SECONDS = 0.1
    LIVENESS = 3

    def __init__(self) -> None:
        super().__init__()
        (self._sock,), (self.address,) = self.sockets, self.addresses
        self._services: dict[bytes, bytes] = {}
        self._idle: dict[bytes, float] = {}
        self._requests: list[tuple[bytes, bytes, list[bytes]]] = []
        self._beat_at = 0.0

    def turn(self) -> None:
        if self._sock.poll(POLL_MS):
            sender, empty, header, *frames = self._sock.recv_multipart()
            assert not empty
            self._client(sender, frames) if header == b"MDPC01" else self._worker(sender, frames)
        now = time.monotonic()
        for worker in [worker for worker, expires in self._idle.items() if expires <= now]:
            del self._idle[worker], self._services[worker]
        if now >= self._beat_at:
            self._beat_at = now + self.HEARTBEAT_SECONDS
            for worker in self._idle:
                self._tell(worker, b"\x04")
        for request in tuple(self._requests):
            client, name, body = request
            worker = next((worker for worker in self._idle if self._services[worker] == name), None)
            if worker is not None:
                self._requests.remove(request)
                del self._idle[worker]
                self._tell(worker, b"\x02", client, b"", *body)

    def _client(self, client: bytes, frames: list[bytes]) -> None:
        name, *body = frames
        if not name.startswith(b"mmi."):
            self._requests.append((client, name, body))
            return
        found = b"200" if body[-1] in self._services.values() else b"404"
        self._sock.send_multipart([client, b"", b"MDPC01", name, found if name == b"mmi.service" else b"501"])

    def _worker(self, worker: bytes, frames: list[bytes]) -> None:
        command, *rest = frames
        known = worker in self._services
        if command == b"\x01" and not known:
            self._services[worker] = rest[0]
            self._waits(worker)
        elif command == b"\x03" and known:
            client, _, *body = rest
            self._sock.send_multipart([client, b"", b"MDPC01", self._services[worker], *body])
            self._waits(worker)
        elif command == b"\x04" and known:
            if worker in self._idle:
                self._waits(worker)
        elif known or command != b"\x05":
            self._services.pop(worker, None)
            self._idle.pop(worker, None)
            self._tell(worker, b"\x05")

    def _waits(self, worker: bytes) -> None:
        self._idle[worker] = time.monotonic() + self.HEARTBEAT_SECONDS * self.LIVENESS

    def _tell(self, worker: bytes, *frames: bytes) -> None:
        self._sock.send_multipart([worker, b"", b"MDPW01", *frames])
