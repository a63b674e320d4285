"""A client of Titanic: it stores a call, asks for its reply until it has it, and closes it (RFC 9).

If the Titanic at the broker understands keys (`protocol`), each call has one. A `titanic.request` with a lost answer is
then sent again and stays one request. Without keys it may become two, as with every client of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from pubsub.services.core.interface import (
    NEVER,
    AccessRefused,
    Answered,
    BaseCore,
    Event,
    Frames,
    GivenUp,
    Patience,
    Rejected,
    Send,
)
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.majordomo.client import majordomo_caller
from pubsub.services.core.titanic import protocol
from pubsub.services.core.titanic.protocol import ERROR, OK, PENDING, UNKNOWN, code

ASK_SECONDS: Final = 0.02
"""Time before the first question for the reply. It doubles up to ASK_SECONDS_MAX."""

ASK_SECONDS_MAX: Final = 1.0

_KEYS: Final = "keys"
"""The step that asks whether keys are understood."""


@dataclass(slots=True)
class _Call:
    token: int
    service: str
    body: Frames
    patience: Patience
    begun: float
    key: bytes
    id: bytes = b""
    step: str = _KEYS
    inner: int = 0
    pause: float = ASK_SECONDS
    again: float = NEVER

    @property
    def ends(self) -> float:
        return self.begun + self.patience.try_seconds * self.patience.tries


class TitanicCaller(BaseCore):
    """Calls through Titanic. A `CallerCore`.

    Args:
        addresses: of the broker.
        new_key: returns a new unique key with each call.
    """

    def __init__(self, addresses: Sequence[str], new_key: Callable[[], bytes]) -> None:
        super().__init__()
        self._addresses, self._new_key = tuple(addresses), new_key
        self._caller: LockstepCaller = majordomo_caller(addresses)
        self._calls: dict[int, _Call] = {}
        self._inner: dict[int, _Call] = {}
        self._tokens = count(1)
        self._keys: bool | None = None
        """Whether Titanic understands keys; None: not known yet."""

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call a service; `patience` covers everything from the request to the reply."""
        call = self._calls[token] = _Call(token, service, body, patience, now, self._new_key())
        if self._keys is None:
            self._ask(call, _KEYS, (protocol.NO_ID,), now)
        else:
            self._request(call, now)
        self._pass_on()

    def _request(self, call: _Call, now: float) -> None:
        key = call.key if self._keys else b""
        self._ask(call, protocol.REQUEST, protocol.keyed(key, call.service, call.body), now)

    def _ask(self, call: _Call, step: str, body: Frames, now: float) -> None:
        call.step, call.again, call.inner = step, NEVER, next(self._tokens)
        self._inner[call.inner] = call
        self._caller.call(call.inner, protocol.REPLY if step == _KEYS else step, body, call.patience, now)

    def cancel(self, token: int, now: float) -> None:
        """Withdraw the call. Titanic keeps the request until it expires."""
        call = self._calls.pop(token, None)
        if call is not None and self._inner.pop(call.inner, None) is not None:
            self._caller.cancel(call.inner, now)
        self._pass_on()

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        self._caller.receive(port, peer, frames, now)
        self._gather(now)

    def _gather(self, now: float) -> None:
        for event in self._caller.take_events():
            call = self._inner.pop(getattr(event, "token", 0), None)
            if call is not None:
                self._told(call, event, now)
        self._pass_on()

    def _pass_on(self) -> None:
        self._sends += self._caller.take_sends()

    def _told(self, call: _Call, event: Event, now: float) -> None:
        if isinstance(event, AccessRefused):
            self._end(call, AccessRefused(call.token, event.reason))
        elif not isinstance(event, Answered):
            self._give_up(call, now)
        elif call.step == _KEYS:
            self._keys = tuple(event.body) == (OK, protocol.KEY_LEAD)
            self._request(call, now)
        elif code(event.body) == ERROR and now + ASK_SECONDS_MAX < call.ends:
            call.again = now + ASK_SECONDS_MAX
        elif code(event.body) == PENDING and call.step == protocol.REPLY:
            call.again = now + call.pause
            call.pause = min(2 * call.pause, ASK_SECONDS_MAX)
        elif code(event.body) != OK or (call.step == protocol.REQUEST and len(event.body) < 2):
            self._end(call, Rejected(call.token, code(event.body).decode(errors="replace"), _text(event.body)))
        elif call.step == protocol.REQUEST:
            call.id = event.body[1]
            self._ask(call, protocol.REPLY, (call.id,), now)
        else:
            self._end(call, Answered(call.token, event.body[1:]))
            self._caller.call(next(self._tokens), protocol.CLOSE, (call.id,), call.patience, now)

    def _end(self, call: _Call, event: Event) -> None:
        del self._calls[call.token]
        self._events.append(event)

    def _give_up(self, call: _Call, now: float) -> None:
        self.counters["given_up"] += 1
        self._end(call, GivenUp(call.token, call.patience.tries, now - call.begun, self._addresses))

    def tick(self, now: float) -> None:
        due = self._caller.timer()
        if due is not None and due <= now:
            self._caller.tick(now)
            self._gather(now)
        for call in [call for call in self._calls.values() if call.ends <= now]:
            if self._inner.pop(call.inner, None) is not None:
                self._caller.cancel(call.inner, now)
            self._give_up(call, now)
        for call in [call for call in self._calls.values() if call.again <= now]:
            if call.step == protocol.REQUEST:
                self._request(call, now)
            else:
                self._ask(call, protocol.REPLY, (call.id,), now)
        self._pass_on()

    def timer(self) -> float | None:
        dues = [min(call.again, call.ends) for call in self._calls.values()]
        inner = self._caller.timer()
        if inner is not None:
            dues.append(inner)
        return min(dues) if dues else None

    def refused(self, port: str, reason: str, now: float) -> None:
        self._caller.refused(port, reason, now)
        self._gather(now)

    def ended(self, port: str, now: float) -> None:
        self._caller.ended(port, now)
        self._gather(now)

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Do nothing: the try ends at its time limit."""
        self._caller.undelivered(send, now, gone=gone)


_REASONS: Final = {
    UNKNOWN: "Titanic cannot store this request, or no longer has it",
    ERROR: "Titanic has no room for it now; try again later",
}


def _text(body: Frames) -> str:
    said = body[0][protocol.CODE_LENGTH :].decode(errors="replace").strip() if body else ""
    return said or _REASONS.get(code(body), "Titanic gave no reason")
