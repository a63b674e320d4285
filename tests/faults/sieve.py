"""A stand-in for a proxy that loses, holds back or repeats chosen messages between a client and a real proxy."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

import zmq

from pubsub.messenger.framing import unpack
from pubsub.messenger.sockets import open_dealer, open_router
from pubsub.protocol import Message, Status, decode

POLL_MS = 5


class Fate(Enum):
    """What becomes of a message."""

    PASS = "pass"
    DROP = "drop"
    HOLD = "hold"
    TWICE = "twice"
    UNANSWERED = "unanswered"
    """It goes through, and its answer is lost."""


class Sieve:
    """Stands before a proxy, for one client after another; a context manager.

    Args:
        target: the proxy's client side.
        judge: says what becomes of each request.

    Attributes:
        address: where clients connect.
        held: requests that wait for `release`.
        late: answers to requests that were released, in the order they came.
        lost: requests that were dropped.
    """

    def __init__(self, target: str, judge: Callable[[Message], Fate]) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._front, self.address = open_router(self._context, "tcp://127.0.0.1:0")
        self._back = open_dealer(self._context, target)
        self.judge = judge
        self.held: list[Message] = []
        self.late: list[Status] = []
        self.lost: list[Message] = []
        self._frames: list[list[bytes]] = []
        self._released: set[int] = set()
        self._unanswered: set[int] = set()
        self._commands: queue.Queue[str] = queue.Queue()
        self._client = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Sieve:
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.put("end")
        self._thread.join(10)
        for one in (self._front, self._back):
            one.close(0)
        self._context.term()

    def release(self) -> None:
        """Send what was held back, in order."""
        self._commands.put("release")

    def _run(self) -> None:
        poller = zmq.Poller()
        for one in (self._front, self._back):
            poller.register(one, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(POLL_MS))
            if self._front in ready:
                self._client, *frames = self._front.recv_multipart()
                self._request(frames)
            if self._back in ready:
                self._answer(self._back.recv_multipart())
            while not self._commands.empty():
                if self._commands.get() == "end":
                    return
                for frames in self._frames:
                    self._released.add(unpack(frames[0]).source)
                    self._back.send_multipart(frames)
                self._frames.clear()

    def _request(self, frames: list[bytes]) -> None:
        prefix, message = _read(frames)
        fate = self.judge(message)
        if fate is Fate.HOLD:
            self._frames.append(frames)
            self.held.append(message)
        elif fate is Fate.DROP:
            self.lost.append(message)
        else:
            if fate is Fate.UNANSWERED:
                self._unanswered.add(prefix.source)
            for _ in range(2 if fate is Fate.TWICE else 1):
                self._back.send_multipart(frames)

    def _answer(self, frames: list[bytes]) -> None:
        prefix, message = _read(frames)
        if prefix.destination in self._released and isinstance(message, Status):
            self.late.append(message)
        if prefix.destination not in self._unanswered:
            self._front.send_multipart([self._client, *frames])


def _read(frames: list[bytes]) -> tuple[Any, Message]:
    prefix = unpack(frames[0])
    return prefix, decode(frames[0][prefix.length :], frames[1] if len(frames) > 1 else b"")
