"""Connects again where ZeroMQ gives a connection up permanently, or retries it without end.

ZeroMQ retries a broken connection by itself, with two exceptions (measured with libzmq 4.3.5):

* A protocol error, or a refusal of our key, ends the connection silently, and every later send finds no room
  (`session_base_t::engine_error`, reason `protocol_error`). A port that once answered with another protocol than
  ZeroMQ's is enough.
* If the other side has an unexpected key, it closes during the handshake. ZeroMQ then retries every 50 ms without end,
  because the TCP connection itself was made.

    situation                                    events of the monitor
    it refuses our key                           HANDSHAKE_FAILED_AUTH 400, and nothing more
    it has another key than we expect            HANDSHAKE_FAILED_NO_DETAIL, EPIPE or ECONNRESET, again and again
    it has a key, we have none                   the same, or, one time in a hundred, HANDSHAKE_FAILED_PROTOCOL
    0x11000002
    it has none, we expect one                   the same, or, two times in five, HANDSHAKE_FAILED_PROTOCOL 0x11000002
    it does not answer within HANDSHAKE_SECONDS  HANDSHAKE_FAILED_NO_DETAIL, EAGAIN, or EPIPE after its own time limit
    it closes at once (a load balancer)          HANDSHAKE_FAILED_NO_DETAIL, EPIPE or ECONNRESET, again and again

So a closed handshake alone does not tell the reason. The other side's greeting does, because it names its security
mechanism; `base.reachability.mechanism` asks for it. The greeting counts only if handshakes are closed after it too.
Earlier ones may have been closed by a load balancer without a process behind it.
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
"""Time before the first reconnection of a connection that was given up; it doubles each time in a row."""

REDIAL_SECONDS_MAX: Final = 30.0

ROUND_SECONDS: Final = 0.05
"""Pause after a round in which no expected key was the right one."""

ROUNDS_MIN: Final = 2
"""Tries of each expected key before the reason is looked for, because a starting or ending peer closes handshakes too.
"""

SLOW_SECONDS: Final = HANDSHAKE_SECONDS / 2
"""A handshake that is closed later than this was closed by a busy peer, not because of keys."""

ASK_SECONDS: Final = 1.0
"""Minimum time between two requests for the greeting."""


class Refusal(StrEnum):
    """The reason why the process at an endpoint refuses the connection."""

    KEY_UNKNOWN = "key_unknown"  # it does not accept our key
    KEY_DIFFERS = "key_differs"  # its key is not one of the expected keys
    KEY_MISSING = "key_missing"  # it has no key, and one is expected
    KEY_WANTED = "key_wanted"  # it requires a key, and we have none


Told = Callable[[Refusal | None], object]
"""Called with the reason at each refused try, and with None when the connection is no longer refused."""


def open_redialed(
    context: zmq.Context[Any],
    endpoint: str,
    *,
    heartbeat_seconds: float = 0.0,
    curve: CurveClient | None = None,
    told: Told | None = None,
    identified: bool = True,
) -> tuple[zmq.Socket[bytes], Redial]:
    """Open a dealer as `open_dealer`, with a `Redial` that connects it again where ZeroMQ does not.

    Args:
        identified: as in `make_dealer`.

    Raises:
        ConfigurationError: `endpoint` is not an address, or is an `inproc://` address of another context.
    """
    sock = make_dealer(context, endpoint, heartbeat_seconds, identified=identified)
    lock_dealer(sock, endpoint, curve)
    # Watch before connecting: a connection may end within a millisecond.
    redial = Redial(context, sock, endpoint, curve, told)
    try:
        connect(sock, endpoint)
    except ConfigurationError:
        redial.close()
        raise
    return sock, redial


class Redial:
    """Connects a DEALER again where ZeroMQ does not, and finds the reason of a refusal.

    Args:
        sock: the DEALER, not connected yet.
        endpoint: the address that it will connect to.
        curve: our key, and the expected keys, tried in turn; None for a connection without keys.
        told: called with each refusal; None for no calls.

    Attributes:
        sock: the monitor to poll for reading; `take` then handles its events.
        due: when `redial` is due, on the monotonic clock in seconds; infinity while ZeroMQ retries by itself.
        refused: the reason of the refusal; None if there is none or it is not known.
        asks: True if the greeting is needed; report it with `asked`.
        ended: True after a connection ended; its reader resets it.
        up: True while connected, according to the handled events.
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
        """Reason according to the last greeting of the other side."""
        self._ask_at = self._connected = float("-inf")
        self.due = float("inf")
        self.refused: Refusal | None = None
        self.asks = self.ended = self.up = False
        self.sock = watch(context, sock, sum(_EVENTS))

    def take(self, now: float) -> list[Refusal | None]:
        """Handle the monitor's events; return the reasons to report to `told`."""
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
            told = value == _MISMATCH  # Any other value means a protocol that is not ZeroMQ's.
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
            self._disconnect()  # Otherwise ZeroMQ would try the same key again meanwhile.
        decided = event == _FAILED_PROTOCOL or self._closed >= ROUNDS_MIN * self._keys
        if decided and now >= self._ask_at and not self._stale:
            self._ask_at = now + ASK_SECONDS
            self.asks = True

    def asked(self, mechanism: str, now: float) -> Refusal | None:
        """Handle the mechanism in the other side's greeting ("" if there was none); return the reason to report, if
        any.
        """
        if not self._closed:
            return None  # The connection was accepted meanwhile, or the other side is gone.
        refusal, before = _BY_MECHANISM.get((self._curve is not None, mechanism)), self._heard
        self._heard = refusal
        if refusal is None:
            return None
        if refusal is not before and not self._mismatch:
            # Waiting events are older than this greeting. Ask again at once after the next closed handshake.
            self._stale, self._ask_at = True, float("-inf")
            return None
        self._refuse(refusal, now)
        return refusal

    def _refuse(self, refusal: Refusal, now: float) -> None:
        """Disconnect, and wait before the next try."""
        self.refused, self._ours, self._switching = refusal, True, False
        self.due = now + self._seconds
        self._disconnect()

    def watches(self, sock: zmq.Socket[bytes]) -> bool:
        """Return True if this is the redial of that socket."""
        return sock is self._watched

    def redial(self) -> None:
        """Connect again with the next expected key; the next try after a failure waits longer."""
        self._disconnect()
        lock_dealer(self._watched, self.endpoint, self._curve, self._turn)
        self._watched.connect(self.endpoint)
        if not self._switching:
            self._seconds = min(2 * self._seconds, REDIAL_SECONDS_MAX)
        self._ours = self._switching = False
        self.due = float("inf")

    def _disconnect(self) -> None:
        with contextlib.suppress(zmq.ZMQError):  # ZeroMQ may have dropped the endpoint together with its connection.
            self._watched.disconnect(self.endpoint)

    def close(self) -> None:
        """Stop watching."""
        with contextlib.suppress(zmq.ZMQError):  # The owner of a shared context may have ended it before.
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
"""(we have a key, the other side's mechanism) -> reason of the refusal."""
