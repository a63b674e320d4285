"""The ZAP handler: answers ZeroMQ's questions about new connections (RFC 27, https://rfc.zeromq.org/spec/27/).

ZeroMQ sends the questions to one address of the context. The process's loop polls this socket together with its
others. So no thread is needed: handshakes wait in ZeroMQ's own thread until the loop answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

from pubsub.errors import ConfigurationError

ENDPOINT: Final = "inproc://zeromq.zap.01"

QUESTIONS_MAX: Final = 256
"""Questions answered in one turn before messages are handled."""


class ZapHandler:
    """The ZAP socket of a context.

    Args:
        context: context of the sockets that require keys; none of them may be bound yet.
        answer: returns the reply frames for the frames of a question; it must not raise.

    Attributes:
        sock: socket to poll for reading; `take` then answers.

    Raises:
        ConfigurationError: this context has a ZAP handler already.
    """

    def __init__(self, context: zmq.Context[Any], answer: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        self._answer = answer
        self.sock: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self.sock.linger = 0
        self.sock.rcvhwm = self.sock.sndhwm = 0  # So ZeroMQ's own thread never waits for us and loses no answer.
        try:
            self.sock.bind(ENDPOINT)
        except zmq.ZMQError:
            self.sock.close(0)
            raise ConfigurationError(
                "this ZeroMQ context already has a ZAP handler; use another context for endpoints with keys"
            ) from None

    def take(self) -> None:
        """Answer the waiting questions, at most QUESTIONS_MAX."""
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
        """Stop answering; another handler may then use this context. Call it before the context ends, which would
        otherwise wait forever.
        """
        with contextlib.suppress(zmq.ZMQError):
            self.sock.unbind(ENDPOINT)  # `close` is asynchronous: a thread of ZeroMQ closes the socket later.
        self.sock.close(0)
