"""Connections that ZeroMQ gives up for good are made anew."""

from __future__ import annotations

import contextlib
import struct
from typing import Any, Final

import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient, lock_dealer
from pubsub.messenger.sockets import EVENTS_MAX, connect, make_dealer, watch


def open_redialed(
    context: zmq.Context[Any], endpoint: str, *, heartbeat_seconds: float = 0.0, curve: CurveClient | None = None
) -> tuple[zmq.Socket[bytes], Redial]:
    """As `open_dealer`, and what connects it again where ZeroMQ does not.

    Raises:
        ConfigurationError: `endpoint` is not an address, or is an `inproc://` one of another context.
    """
    sock = make_dealer(context, endpoint, heartbeat_seconds)
    lock_dealer(sock, endpoint, curve)
    redial = Redial(context, sock, endpoint)  # Before it connects: a connection may be over within a millisecond.
    try:
        connect(sock, endpoint)
    except ConfigurationError:
        redial.close()
        raise
    return sock, redial


class Redial:
    """Connects a DEALER again where ZeroMQ has given its connection up for good.

    ZeroMQ tries again by itself after whatever may happen to a connection, but not after a protocol error: a port that
    once answered with something else than ZeroMQ, or with another security mechanism, ends the connection without a
    word, and each send finds no room from then on (libzmq, `session_base_t::engine_error`, reason `protocol_error`).
    What a monitor sees then is a connection that ended with no retry behind it, whatever ended it.

    Args:
        context: the socket's.
        sock: the socket, not connected yet.
        endpoint: what it will be connected to.

    Attributes:
        sock: to be polled for reading; `take` then looks what happened.
        due: when `redial` is to be called, on the monotonic clock in seconds; infinity where ZeroMQ sees to it.
    """

    def __init__(self, context: zmq.Context[Any], sock: zmq.Socket[bytes], endpoint: str) -> None:
        self._watched, self._endpoint = sock, endpoint
        self._seconds = REDIAL_SECONDS
        self.due = float("inf")
        self.sock = watch(context, sock, _RETRIED | _ENDED | _ESTABLISHED)

    def take(self, now: float) -> None:
        """Look what happened to the connection since the last time."""
        for _ in range(EVENTS_MAX):
            try:
                event = struct.unpack("=hi", self.sock.recv_multipart(zmq.NOBLOCK)[0])[0]
            except zmq.Again:
                return
            if event == _ENDED:
                self.due = now + self._seconds
            else:
                self.due = float("inf")
                if event == _ESTABLISHED:
                    self._seconds = REDIAL_SECONDS

    def watches(self, sock: zmq.Socket[bytes]) -> bool:
        """Whether it is this socket's connection."""
        return sock is self._watched

    def redial(self) -> None:
        """Connect again; where nothing comes of that either, later once more."""
        with contextlib.suppress(zmq.ZMQError):  # ZeroMQ may have forgotten the endpoint with its connection.
            self._watched.disconnect(self._endpoint)
        self._watched.connect(self._endpoint)
        self._seconds = min(2 * self._seconds, REDIAL_SECONDS_MAX)
        self.due = float("inf")

    def close(self) -> None:
        """Watch no more."""
        with contextlib.suppress(zmq.ZMQError):  # The context, which may be another's, was ended before.
            self._watched.disable_monitor()
        self.sock.close(0)


REDIAL_SECONDS: Final = 1.0
"""A connection that ZeroMQ gave up for good is made anew after this; each time in a row after twice as long."""

REDIAL_SECONDS_MAX: Final = 30.0

_RETRIED: Final = int(zmq.EVENT_CONNECT_RETRIED)
_ENDED: Final = int(zmq.EVENT_DISCONNECTED)
_ESTABLISHED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
