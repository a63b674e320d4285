"""All connections that a Messenger makes again itself: due times, and reports of refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import zmq

from pubsub.base.reachability import mechanism
from pubsub.messenger.core import Counters
from pubsub.messenger.redial import Redial, Refusal

_NEVER: Final = float("inf")


class Redials:
    """The redials of one loop; used only by the thread that has the turn.

    Args:
        call: calls the application.
        enqueue: queues work for the turn, from another thread.

    Attributes:
        due: when `redial` is due, on the monotonic clock in seconds.
    """

    def __init__(
        self,
        counters: Counters,
        call: Callable[[Callable[..., object], tuple[Any, ...]], bool],
        enqueue: Callable[[Callable[[float], None]], None],
    ) -> None:
        self._counters, self._call, self._enqueue = counters, call, enqueue
        self._redials: dict[zmq.Socket[bytes], Redial] = {}
        self.due = _NEVER

    def __contains__(self, source: object) -> bool:
        return source in self._redials

    def add(self, redial: Redial) -> None:
        """Add a connection; poll its `sock` and call `take` for it."""
        self._redials[redial.sock] = redial

    def drop(self, sock: zmq.Socket[bytes]) -> zmq.Socket[bytes] | None:
        """Remove a connection; return the socket that was polled for it, if any."""
        redial = self._of(sock)
        if redial is None:
            return None
        del self._redials[redial.sock]
        redial.close()
        return redial.sock

    def _of(self, sock: zmq.Socket[bytes]) -> Redial | None:
        return next((redial for redial in self._redials.values() if redial.watches(sock)), None)

    def take(self, source: zmq.Socket[bytes], now: float) -> None:
        """Handle the events of a connection, and report a refusal or its end."""
        redial = self._redials[source]
        for refusal in redial.take(now):
            self._tell(redial, refusal)
        if redial.asks:
            redial.asks = False
            # Asking needs a connection and may take long, so a thread does it. If no thread can start (at the limit
            # of threads, or at the process's end), ask again after the next closed handshake.
            with suppress(RuntimeError):
                Thread(target=self._find_out, args=(redial,), name="messenger asks", daemon=True).start()
        self._reckon()

    def _find_out(self, redial: Redial) -> None:
        found = mechanism(redial.endpoint)

        def asked(now: float) -> None:
            if redial.sock in self._redials and (refusal := redial.asked(found, now)) is not None:
                self._tell(redial, refusal)
                self._reckon()

        self._enqueue(asked)

    def _tell(self, redial: Redial, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._counters.keys_refused += 1
        if redial.told is not None:
            self._call(redial.told, (refusal,))

    def hurry(self, sock: zmq.Socket[bytes], *, anew: bool) -> None:
        """Connect a refused connection again at once; with `anew`, any connection."""
        redial = self._of(sock)
        if redial is not None and (anew or redial.refused is not None):
            redial.redial()  # Connect now, so that the next message finds a connection.
            self._counters.redialed += 1
            self._reckon()

    def redial(self, now: float) -> None:
        """Connect all connections that are due."""
        for redial in self._redials.values():
            if redial.due <= now:
                redial.redial()
                self._counters.redialed += 1
        self._reckon()

    def _reckon(self) -> None:
        self.due = min([redial.due for redial in self._redials.values()], default=_NEVER)

    def close(self) -> None:
        for redial in self._redials.values():
            redial.close()
        self._redials.clear()
