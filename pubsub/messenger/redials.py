"""All connections of a Messenger that are made anew by us: which are due, and who is told why one is refused."""

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
    """The redials of one loop; with its turn only.

    Args:
        counters: where it is counted.
        call: calls the application.
        enqueue: has something done with the turn, from another thread.

    Attributes:
        due: when `redial` is to be called, on the monotonic clock in seconds.
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
        """Look after one more; its `sock` is to be polled, and `take` called for it."""
        self._redials[redial.sock] = redial

    def drop(self, sock: zmq.Socket[bytes]) -> zmq.Socket[bytes] | None:
        """Look after a connection no more; what was to be polled for it, if anything was."""
        redial = self._of(sock)
        if redial is None:
            return None
        del self._redials[redial.sock]
        redial.close()
        return redial.sock

    def _of(self, sock: zmq.Socket[bytes]) -> Redial | None:
        return next((redial for redial in self._redials.values() if redial.watches(sock)), None)

    def take(self, source: zmq.Socket[bytes], now: float) -> None:
        """Something happened to a connection; who wants to know is told why it is refused, or that it is not."""
        redial = self._redials[source]
        for refusal in redial.take(now):
            self._tell(redial, refusal)
        if redial.asks:
            redial.asks = False
            # To ask takes a connection, which may take its time. Where no thread can be started, since the process
            # may have no more of them or is about to end, it is asked the next time that the handshake is closed.
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
            self._counters.turned_away += 1
        if redial.told is not None:
            self._call(redial.told, (refusal,))

    def hurry(self, sock: zmq.Socket[bytes], *, anew: bool) -> None:
        """Where a connection is refused, make it anew at once; `anew`: in any case."""
        redial = self._of(sock)
        if redial is not None and (anew or redial.refused is not None):
            redial.redial()  # At once, so that a message that is sent next finds a connection.
            self._counters.redialed += 1
            self._reckon()

    def redial(self, now: float) -> None:
        """Connect anew what is due."""
        for redial in self._redials.values():
            if redial.due <= now:
                redial.redial()
                self._counters.redialed += 1
        self._reckon()

    def _reckon(self) -> None:
        self.due = min([redial.due for redial in self._redials.values()], default=_NEVER)

    def close(self) -> None:
        """Look after none any more."""
        for redial in self._redials.values():
            redial.close()
        self._redials.clear()
