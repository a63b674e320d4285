"""The caller of a protocol whose replies do not say what they answer: one request at a time on each connection.

That is how a REQ socket works, and with it the Lazy Pirate client: where no reply comes in time the connection is
closed, so that a late reply finds nobody, and the request is sent again on a new one, to the next address where there
are several. Here a connection is a *lane*: a DEALER that sends REQ's empty frame itself. Calls side by side take a lane
each; a lane whose call was answered takes the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pubsub.services.core.interface import (
    NEVER,
    BaseCore,
    Dial,
    Event,
    Frames,
    GivenUp,
    HangUp,
    PartlyAnswered,
    Patience,
    Send,
    ShutOut,
)

LANES_MAX: Final = 64
"""Connections of one caller at a time; further calls wait for one that is free."""


class Wire(Protocol):
    """How a request and its reply look; frames as a DEALER has them, with the empty frame where there is one."""

    def request(self, service: str, body: Frames) -> Frames:
        """The frames of a request."""

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """What a message means that came while a call waited: its end, or None where it is no reply to it."""


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
    """A part of the reply came: the call is not sent again, since nobody could tell the parts of two tries apart."""


@dataclass(slots=True)
class Lane:
    """A connection, and the call that it carries."""

    port: str
    address: int
    call: _Call | None = None
    due: float = NEVER
    refused: str = ""


class LockstepCaller(BaseCore):
    """Calls over lanes. A `CallerCore`.

    Args:
        wire: how requests and replies look.
        addresses: where to call, tried in turn.
    """

    def __init__(self, wire: Wire, addresses: Sequence[str]) -> None:
        super().__init__()
        self._wire, self._addresses = wire, tuple(addresses)
        self._first = 0
        """Which address answered last: a new call begins there."""
        self._lanes: dict[str, Lane] = {}
        self._free: list[Lane] = []
        self._busy: dict[int, Lane] = {}
        self._waiting: dict[int, _Call] = {}
        self._dialled = 0

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call a service. Ends by one event, or by `cancel`."""
        ends = now + patience.try_seconds * patience.tries
        call = _Call(token, service, self._wire.request(service, body), patience, now, ends)
        if self._free or len(self._lanes) < LANES_MAX:
            self._begin(call, now)
        else:
            self._waiting[token] = call

    def cancel(self, token: int, now: float) -> None:
        """Nobody waits for the answer any more."""
        self._waiting.pop(token, None)
        lane = self._busy.pop(token, None)
        if lane is not None:
            self._drop(lane)  # Its reply would be taken for that of the next call.
            self._next(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A message came on a lane."""
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
        """Who listens there does not let us in: the try is over; "": it does again."""
        super().refused(port, reason, now)
        lane = self._lanes.get(port)
        if lane is not None:
            lane.refused = reason
            if reason and lane.call is not None:
                self._try_over(lane, now)

    def timer(self) -> float | None:
        """When a try, or the wait for a lane, is over."""
        dues = [lane.due for lane in self._busy.values()]
        if self._waiting:
            dues.append(min(call.ends for call in self._waiting.values()))
        return min(dues) if dues else None

    def tick(self, now: float) -> None:
        """Try again what is due, or give it up."""
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
        """Begin a call that waits, where there is a lane for it."""
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
                self._events.append(ShutOut(call.token, lane.refused))
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
