"""Connections that ZeroMQ gives up for good, or makes anew without an end, are made anew by us.

ZeroMQ tries again by itself after whatever may happen to a connection, with two exceptions (libzmq 4.3.5, measured):

* A protocol error, and a key that the other side does not let in, end the connection without a word, and each send
  finds no room from then on (`session_base_t::engine_error`, reason `protocol_error`). A port that once answered with
  something else than ZeroMQ is enough.
* Where the other side has another key than the one expected, it closes in the handshake, and ZeroMQ comes back every
  50 ms for ever, since the connection itself was made.

    what they have, what we have             what the monitor shows
    our key is not let in there              HANDSHAKE_FAILED_AUTH 400, and nothing more
    it has another key than we expect        HANDSHAKE_FAILED_NO_DETAIL, EPIPE or ECONNRESET, again and again
    it has a key, we have none               the same, or, one time in a hundred, HANDSHAKE_FAILED_PROTOCOL 0x11000002
    it has none, we expect one               the same, or, two times in five, HANDSHAKE_FAILED_PROTOCOL 0x11000002
    it does not answer in HANDSHAKE_SECONDS  HANDSHAKE_FAILED_NO_DETAIL, EAGAIN, or EPIPE where its own patience is over
    it closes at once (a balancer)           HANDSHAKE_FAILED_NO_DETAIL, EPIPE or ECONNRESET, again and again

So what a closed handshake means is found out by asking for the other side's greeting (`base.reachability.mechanism`),
which says how it lets others in. It counts once handshakes were closed after it too: those before may have been closed
by a balancer, behind which nobody was until just then.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient, lock_dealer
from pubsub.messenger.sockets import EVENTS_MAX, HANDSHAKE_SECONDS, connect, make_dealer, watch

REDIAL_SECONDS: Final = 1.0
"""A connection that was given up for good is made anew after this; each time in a row after twice as long."""

REDIAL_SECONDS_MAX: Final = 30.0

ROUND_SECONDS: Final = 0.05
"""Where none of several expected keys was the right one they are tried once more after this."""

ROUNDS_MIN: Final = 2
"""Each expected key is tried so often before it is found out why nobody speaks with us: who ends or begins at that very
moment closes handshakes too."""

SLOW_SECONDS: Final = HANDSHAKE_SECONDS / 2
"""Who closes a handshake later than this was too busy for it, and said nothing about keys."""

ASK_SECONDS: Final = 1.0
"""Between two times that it is found out."""


class Refusal(StrEnum):
    """Why somebody who listens at an endpoint does not speak with us."""

    KEY_UNKNOWN = "key_unknown"  # it does not let our key in
    KEY_DIFFERS = "key_differs"  # it has another key than those that are expected
    KEY_MISSING = "key_missing"  # it has none, and one is expected
    KEY_WANTED = "key_wanted"  # it asks for a key, and we have none


Told = Callable[[Refusal | None], object]
"""Called with why a connection is refused, each time that it is; with None when nothing stands against it any more."""


def open_redialed(
    context: zmq.Context[Any],
    endpoint: str,
    *,
    heartbeat_seconds: float = 0.0,
    curve: CurveClient | None = None,
    told: Told | None = None,
    identified: bool = True,
) -> tuple[zmq.Socket[bytes], Redial]:
    """As `open_dealer`, and what connects it again where ZeroMQ does not; `identified` as of `make_dealer`.

    Raises:
        ConfigurationError: `endpoint` is not an address, or is an `inproc://` one of another context.
    """
    sock = make_dealer(context, endpoint, heartbeat_seconds, identified=identified)
    lock_dealer(sock, endpoint, curve)
    # Before it connects: a connection may be over within a millisecond.
    redial = Redial(context, sock, endpoint, curve, told)
    try:
        connect(sock, endpoint)
    except ConfigurationError:
        redial.close()
        raise
    return sock, redial


class Redial:
    """Connects a DEALER again where ZeroMQ does not, and knows why it is refused.

    Args:
        context: the socket's.
        sock: the socket, not connected yet.
        endpoint: what it will be connected to.
        curve: our key, and those that are expected there, tried in turn; None: there are none.
        told: to be told why it is refused; None: nobody.

    Attributes:
        sock: to be polled for reading; `take` then looks what happened.
        due: when `redial` is to be called, on the monotonic clock in seconds; infinity where ZeroMQ sees to it.
        refused: why nobody speaks with us; None: somebody does, or that is not known.
        asks: it is to be found out why the handshake is closed; `asked` takes it.
        ended: a connection has ended; whoever wants to know resets it.
        up: it is connected, as far as was taken.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        sock: zmq.Socket[bytes],
        endpoint: str,
        curve: CurveClient | None = None,
        told: Told | None = None,
    ) -> None:
        self._watched, self.endpoint, self._curve, self.told = sock, endpoint, curve, told
        self._seconds = REDIAL_SECONDS
        self._keys = 1 if curve is None else len(curve.expected)
        self._turn = self._closed = 0
        self._ours = self._switching = self._mismatch = self._stale = False
        self._heard: Refusal | None = None
        """What the other side's greeting meant when it was asked for last."""
        self._ask_at = self._connected = float("-inf")
        self.due = float("inf")
        self.refused: Refusal | None = None
        self.asks = self.ended = self.up = False
        self.sock = watch(context, sock, sum(_EVENTS))

    def take(self, now: float) -> list[Refusal | None]:
        """Look what happened to the connection since the last time; what is to be told of it."""
        news: list[Refusal | None] = []
        for _ in range(EVENTS_MAX):
            try:
                event, value = struct.unpack("=hi", self.sock.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                break
            self.ended = self.ended or event == _ENDED
            if event in {_ENDED, _ESTABLISHED}:
                self.up = event == _ESTABLISHED
            if event == _ESTABLISHED or (event == _NOT_REACHED and not self._ours):
                self._closed, self.due, self._ours = 0, float("inf"), False
                self._heard, self._mismatch = None, False
                if event == _ESTABLISHED:
                    self._seconds = REDIAL_SECONDS
                if self.refused is not None:
                    self.refused = None
                    news.append(None)
            elif event == _FAILED_AUTH:
                self._refuse(Refusal.KEY_UNKNOWN, now)
                news.append(Refusal.KEY_UNKNOWN)
            elif event == _CONNECTED:
                self._connected = now
            elif event in _CLOSED:
                self._handshake_closed(event, value, now)
            elif not self._ours:
                self.due = now + self._seconds if event == _ENDED else float("inf")
        if self._stale:
            self._closed, self._stale = 0, False
        return news

    def _handshake_closed(self, event: int, value: int, now: float) -> None:
        if event == _FAILED_PROTOCOL:
            told = value == _MISMATCH  # Or it is no ZeroMQ.
        else:
            told = value != errno.EAGAIN and now - self._connected < SLOW_SECONDS
        if self._ours or not told:
            return
        self._closed += 1
        self._mismatch = self._mismatch or event == _FAILED_PROTOCOL
        if self._keys > 1:
            self._turn += 1
            self._ours = self._switching = True
            self.due = now if self._turn % self._keys else now + ROUND_SECONDS
            self._disconnect()  # Or ZeroMQ would try the same key again meanwhile.
        decided = event == _FAILED_PROTOCOL or self._closed >= ROUNDS_MIN * self._keys
        if decided and now >= self._ask_at and not self._stale:
            self._ask_at = now + ASK_SECONDS
            self.asks = True

    def asked(self, mechanism: str, now: float) -> Refusal | None:
        """It was found out how the other side lets others in, "" where it was not; what is to be told of it."""
        if not self._closed:
            return None  # It was let in meanwhile, or nobody is there any more.
        refusal, before = _BY_MECHANISM.get((self._curve is not None, mechanism)), self._heard
        self._heard = refusal
        if refusal is None:
            return None
        if refusal is not before and not self._mismatch:
            # What waits to be taken was closed before it was asked. Of what comes then it is asked at once.
            self._stale, self._ask_at = True, float("-inf")
            return None
        self._refuse(refusal, now)
        return refusal

    def _refuse(self, refusal: Refusal, now: float) -> None:
        """Leave it alone for a while."""
        self.refused, self._ours, self._switching = refusal, True, False
        self.due = now + self._seconds
        self._disconnect()

    def watches(self, sock: zmq.Socket[bytes]) -> bool:
        """Whether it is this socket's connection."""
        return sock is self._watched

    def redial(self) -> None:
        """Connect again, with the next of the expected keys; where nothing comes of that either, later once more."""
        self._disconnect()
        lock_dealer(self._watched, self.endpoint, self._curve, self._turn)
        self._watched.connect(self.endpoint)
        if not self._switching:
            self._seconds = min(2 * self._seconds, REDIAL_SECONDS_MAX)
        self._ours = self._switching = False
        self.due = float("inf")

    def _disconnect(self) -> None:
        with contextlib.suppress(zmq.ZMQError):  # ZeroMQ may have forgotten the endpoint with its connection.
            self._watched.disconnect(self.endpoint)

    def close(self) -> None:
        """Watch no more."""
        with contextlib.suppress(zmq.ZMQError):  # The context, which may be another's, was ended before.
            self._watched.disable_monitor()
        self.sock.close(0)


_ENDED: Final = int(zmq.EVENT_DISCONNECTED)
_ESTABLISHED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_CONNECTED: Final = int(zmq.EVENT_CONNECTED)
_NOT_REACHED: Final = int(zmq.EVENT_CLOSED)
_FAILED_AUTH: Final = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_FAILED_PROTOCOL: Final = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_CLOSED: Final = (int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), _FAILED_PROTOCOL)
_EVENTS: Final = (
    int(zmq.EVENT_CONNECT_RETRIED),
    _CONNECTED,
    _ENDED,
    _ESTABLISHED,
    _NOT_REACHED,
    _FAILED_AUTH,
    *_CLOSED,
)
_MISMATCH: Final = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)

_BY_MECHANISM: Final = {
    (True, "CURVE"): Refusal.KEY_DIFFERS,
    (True, "NULL"): Refusal.KEY_MISSING,
    (False, "CURVE"): Refusal.KEY_WANTED,
}
"""Whether we have a key, and how the other side lets others in -> why it does not let us in."""
