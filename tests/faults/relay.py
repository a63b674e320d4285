"""A TCP relay of the test's own, on loopback: it cuts without a word, delays, and loses one direction.

Bytes that were lost cannot be made good within a TCP connection, so connections that lost some are closed by `heal`, as
a network's end would find out in the end. A connection can be told by the server that announces itself on it, or by the
process that opened it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

UP, DOWN = "up", "down"
"""Towards the target, and back."""

_ANNOUNCED: Final = re.compile(rb"-(?:PERIODIC|HEARTBEAT) ([A-Za-z0-9._-]+) ")


@dataclass(slots=True)
class Pair:
    """One connection and the one that it is passed on by."""

    near: socket.socket
    far: socket.socket
    label: str = ""
    lost: bool = False
    silent: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def close(self) -> None:
        """Both, at once."""
        for one in (self.near, self.far):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Relay:
    """Listens on a port of its own and passes on what comes; a context manager.

    Args:
        target: whom it is passed on to.
        whose: the name of the process that a connection comes from, by its port; None: it is told by what is announced.

    Attributes:
        endpoint: where to connect.
        delay: seconds that each chunk takes.
        silent: directions in which everything vanishes, on every connection.
        blocked: servers whose connections are silent both ways.
        passed: bytes in each direction until now.
        apart: by name, directions that are silent on the connections of that one.
    """

    def __init__(self, target: str, whose: Callable[[int], str] | None = None) -> None:
        host, _, port = target.removeprefix("tcp://").partition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay = 0.0
        self.silent: set[str] = set()
        self.blocked: set[str] = set()
        self.apart: dict[str, set[str]] = {}
        self.passed = {UP: 0, DOWN: 0}
        self._whose = whose
        self._pairs: list[Pair] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in list(self._pairs):
            pair.close()

    def cut(self) -> None:
        """The connections that are open pass nothing more, and nobody is told; new ones work."""
        for pair in list(self._pairs):
            pair.silent = {UP, DOWN}
            pair.lost = True

    def heal(self) -> None:
        """Everything works again; connections that lost something are closed."""
        self.delay = 0.0
        with self._lock:  # Or a connection that loses something at this very moment would be silent for ever.
            self.silent, self.blocked, self.apart = set(), set(), {}
            for pair in list(self._pairs):
                if pair.lost:
                    pair.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(near, far, "" if self._whose is None else self._whose(near.getpeername()[1]))
            self._pairs.append(pair)
            for way in ((near, far, UP), (far, near, DOWN)):
                threading.Thread(target=self._pump, args=(pair, *way), daemon=True).start()

    def _pump(self, pair: Pair, source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                if way == UP and not pair.label and (found := _ANNOUNCED.search(chunk)):
                    pair.label = found[1].decode()
                if self.delay:
                    time.sleep(self.delay)  # It is what the relay is for; no test waits for it.
                if self._loses(pair, way):
                    continue
                sink.sendall(chunk)
                self._count(pair, way, chunk)
        if not pair.lost:
            pair.close()
        self._ended(pair, way)

    def _count(self, pair: Pair, way: str, chunk: bytes) -> None:
        """A chunk has come through."""
        self.passed[way] += len(chunk)

    def _loses(self, pair: Pair, way: str) -> bool:
        """Whether nothing comes through this way: a stream with a hole in it is of no use any more."""
        with self._lock:
            apart = way in self.apart.get(pair.label, ())
            if way in self.silent or way in pair.silent or apart or pair.label in self.blocked or pair.lost:
                pair.lost = True
                pair.silent.add(way)
            return pair.lost

    def _ended(self, pair: Pair, way: str) -> None:
        """Nothing comes this way any more; who runs for long would else run out of sockets."""
        with self._lock:
            pair.ended.add(way)
            if pair.ended == {UP, DOWN}:
                self._pairs.remove(pair)
                pair.near.close()
                pair.far.close()
