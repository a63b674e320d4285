"""The caller of protocols with replies that name no request: each connection carries one request at a time.

A REQ socket works this way, and so does the Lazy Pirate client. If no reply comes in time, the connection is closed, so
that a late reply is dropped. The request is repeated on a new connection, to the next address if there are several. A
connection here is a *lane*: a DEALER that sends REQ's empty frame itself. Concurrent calls have one connection each. A
connection is used again after a reply.

The rule is docs/explanation/services-engine.md, E5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pubsub.services.core.interface import (
    NEVER,
    AccessRefused,
    BaseCore,
    Dial,
    Event,
    Frames,
    GivenUp,
    HangUp,
    PartlyAnswered,
    Patience,
    Send,
)

LANES_MAX: Final = 64
"""Connections of one caller at a time. Further calls wait for a free one."""


class Wire(Protocol):
    """The encoding of requests and replies; frames as a DEALER has them, with the empty frame if there is one."""

    def request(self, service: str, body: Frames) -> Frames: ...

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """Return the event that a message means for a waiting call; None if it is no reply."""


@dataclass(slots=True)
class _Call:
    token: int
    service: str
    frames: Frames
    patience: Patience
    begun: float
    ends: float
    tries: int = 0
    parted: bool = False
    """Whether a part of the reply came. The call is then not repeated, since the parts of two tries would mix."""


@dataclass(slots=True)
class Lane:
    """A connection, and the call that it carries."""

    port: str
    address: int
    call: _Call | None = None
    due: float = NEVER
    refused: str = ""


class LockstepCaller(BaseCore):
    """Calls over connections with one request each. A `CallerCore`.

    Args:
        wire: the encoding of requests and replies.
        addresses: tried in turn.
    """

    def __init__(self, wire: Wire, addresses: Sequence[str]) -> None:
        super().__init__()
        self._wire, self._addresses = wire, tuple(addresses)
        self._first = 0
        """Index of the address that replied last; a new call begins with it."""
        self._lanes: dict[str, Lane] = {}
        self._free: list[Lane] = []
        self._busy: dict[int, Lane] = {}
        self._waiting: dict[int, _Call] = {}
        self._dialled = 0

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        ends = now + patience.try_seconds * patience.tries
        call = _Call(token, service, self._wire.request(service, body), patience, now, ends)
        if self._free or len(self._lanes) < LANES_MAX:
            self._begin(call, now)
        else:
            self._waiting[token] = call

    def cancel(self, token: int, now: float) -> None:
        self._waiting.pop(token, None)
        lane = self._busy.pop(token, None)
        if lane is not None:
            self._drop(lane)  # A late reply would be taken for that of the next call.
            self._next(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        lane = self._lanes.get(port)
        if lane is None or lane.call is None:
            self.counters["unasked"] += 1
            return
        call = lane.call
        event = self._wire.reply(call.token, call.service, frames)
        if event is None:
            self.counters["undecodable"] += 1
            return
        if isinstance(event, PartlyAnswered):
            call.parted = True
            call.ends = lane.due = now + call.patience.try_seconds
            self._events.append(event)
            return
        self.counters["answered"] += 1
        self._first = lane.address
        self._events.append(event)
        del self._busy[call.token]
        lane.call, lane.due, lane.refused = None, NEVER, ""
        self._free.append(lane)
        self._next(now)

    def refused(self, port: str, reason: str, now: float) -> None:
        """End the present try, since the other side refuses this process; "": it accepts again."""
        super().refused(port, reason, now)
        lane = self._lanes.get(port)
        if lane is not None:
            lane.refused = reason
            if reason and lane.call is not None:
                self._try_over(lane, now)

    def timer(self) -> float | None:
        dues = [lane.due for lane in self._busy.values()]
        if self._waiting:
            dues.append(min(call.ends for call in self._waiting.values()))
        return min(dues) if dues else None

    def tick(self, now: float) -> None:
        """Repeat calls with an ended try, or give them up."""
        for lane in [lane for lane in self._busy.values() if lane.due <= now]:
            self._try_over(lane, now)
        self._give_up(call for call in tuple(self._waiting.values()) if call.ends <= now)

    def _give_up(self, calls: Iterable[_Call]) -> None:
        for call in calls:
            del self._waiting[call.token]
            self.counters["given_up"] += 1
            self._events.append(GivenUp(call.token, 0, call.ends - call.begun, self._addresses))

    def _begin(self, call: _Call, now: float) -> None:
        lane = self._free.pop() if self._free else self._open(self._first)
        lane.call = call
        self._busy[call.token] = lane
        self._send(lane, call, now)

    def _next(self, now: float) -> None:
        """Begin waiting calls while there are free connections."""
        while self._waiting and (self._free or len(self._lanes) < LANES_MAX):
            self._begin(self._waiting.pop(next(iter(self._waiting))), now)

    def _open(self, address: int) -> Lane:
        self._dialled += 1
        lane = Lane(f"lane {self._dialled}", address)
        self._lanes[lane.port] = lane
        self._sends.append(Dial(lane.port, self._addresses[address]))
        return lane

    def _drop(self, lane: Lane) -> None:
        del self._lanes[lane.port]
        self._sends.append(HangUp(lane.port))

    def _send(self, lane: Lane, call: _Call, now: float) -> None:
        call.tries += 1
        lane.due = min(now + call.patience.try_seconds, call.ends)
        self._sends.append(Send(lane.port, b"", call.frames))

    def _try_over(self, lane: Lane, now: float) -> None:
        call = lane.call
        assert call is not None
        del self._busy[call.token]
        self._drop(lane)
        only_one_refuses = bool(lane.refused) and len(self._addresses) == 1
        if call.tries >= call.patience.tries or now >= call.ends or only_one_refuses or call.parted:
            self.counters["given_up"] += 1
            if lane.refused:
                self._events.append(AccessRefused(call.token, lane.refused))
            else:
                self._events.append(GivenUp(call.token, call.tries, now - call.begun, self._addresses))
            self._next(now)
            return
        self.counters["retried"] += 1
        address = (lane.address + 1) % len(self._addresses)
        self._first = address
        lane = self._open(address)
        lane.call = call
        self._busy[call.token] = lane
        self._send(lane, call, now)
