"""Answers the questions that ZeroMQ asks about newcomers (ZAP, RFC 27, https://rfc.zeromq.org/spec/27/).

The questions come to one address of the context. Whoever runs the process's loop polls the socket with its others, so
no thread is needed: handshakes wait in ZeroMQ's own thread until the loop comes round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

from pubsub.errors import ConfigurationError

ENDPOINT: Final = "inproc://zeromq.zap.01"

QUESTIONS_MAX: Final = 256
"""Questions that are answered before messages have their turn."""


class Doorkeeper:
    """The one socket of a context that is asked.

    Args:
        context: that of the sockets which ask for keys; none of them may be bound yet.
        answer: gives the frames of the reply to a question's frames; it never raises.

    Attributes:
        sock: to be polled for reading; `take` then answers.

    Raises:
        ConfigurationError: somebody else is asked in this context already.
    """

    def __init__(self, context: zmq.Context[Any], answer: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        self._answer = answer
        self.sock: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self.sock.linger = 0
        self.sock.rcvhwm = self.sock.sndhwm = 0  # ZeroMQ's own thread neither waits for us nor loses an answer.
        try:
            self.sock.bind(ENDPOINT)
        except zmq.ZMQError:
            self.sock.close(0)
            raise ConfigurationError(
                "this ZeroMQ context has somebody already who lets newcomers in; open what has keys in another context"
            ) from None

    def take(self) -> None:
        """Answer what was asked since the last time; a part of it, where that is much."""
        for _ in range(QUESTIONS_MAX):
            try:
                frames = self.sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            reply = self._answer(frames)
            if reply:
                try:
                    self.sock.send_multipart(reply, zmq.NOBLOCK)
                except zmq.ZMQError as error:
                    if error.errno not in {zmq.EAGAIN, zmq.EHOSTUNREACH}:
                        raise

    def close(self) -> None:
        """Answer no more; another may in this context. Before that is ended, which would wait for ever."""
        with contextlib.suppress(zmq.ZMQError):
            self.sock.unbind(ENDPOINT)  # A socket is closed later, by a thread of ZeroMQ's.
        self.sock.close(0)
