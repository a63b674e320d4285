"""A client that speaks the protocol by itself: messages that the library would never send, or never that late."""

from __future__ import annotations

import json
from typing import Any

import zmq

from pubsub.messenger.curve import CurveClient
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer
from pubsub.protocol import Message, Report, Status, decode, encode

PATIENCE_MS = 120_000


class Wire:
    """A link to a proxy; a context manager. With `curve` by a key."""

    def __init__(self, address: str, curve: CurveClient | None = None) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = open_dealer(self._context, address, curve=curve)
        self._number = 100
        self._answers: dict[int, Status] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close(0)
        self._context.term()

    def send(self, message: Message) -> int:
        """Sends it; returns by what its answer is asked for."""
        self._number += 1
        head, body = encode(message)
        frames = [pack(self._number, self._number, 0) + head]
        self._socket.send_multipart([*frames, body] if len(body) else frames)
        return self._number

    def answer(self, number: int, patience_ms: int = PATIENCE_MS) -> Status:
        """The answer to it."""
        while number not in self._answers:
            assert self._socket.poll(patience_ms), "no answer"
            head, *rest = self._socket.recv_multipart()
            prefix = unpack(head)
            status = decode(head[prefix.length :], rest[0] if rest else b"")
            assert isinstance(status, Status)
            self._answers[prefix.destination] = status
        return self._answers.pop(number)

    def ask(self, message: Message) -> Status:
        """Sends it and returns the answer."""
        return self.answer(self.send(message))

    def report(self, target: str) -> dict[str, Any]:
        """A server's or (`-`) the proxy's report; {} where it is not to be had just now."""
        status = self.ask(Report("test", target))
        found = json.loads(bytes(status.body) or b"{}")
        assert isinstance(found, dict)
        return found
