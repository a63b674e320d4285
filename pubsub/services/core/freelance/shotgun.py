"""Freelance, model 2: the caller asks all servers at once and takes the first reply (the Guide, chapter 4).

Every server does every request, and all replies but one are dropped; what is bought for it is that a server that is
down costs no time. Each has a DEALER of its own and so gets one copy: a DEALER that is connected to all of them, as in
the Guide, deals copies out in turn, and gives a server two while another is away.

A copy for a server that is away waits in its socket. One that has answered nothing for SILENT_SECONDS is dialled anew,
which drops what waits, so that a server that comes back does not begin with what nobody waits for any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.errors import DecodeError
from pubsub.services.core.freelance.calls import Call, Calls
from pubsub.services.core.freelance.codec import decode_number, decode_sequenced, encode_number, encode_sequenced
from pubsub.services.core.interface import Answered, BaseCore, Dial, Frames, GivenUp, Patience, Send, ShutOut

SILENT_SECONDS: Final = 10.0
"""So long a server may owe an answer before it is dialled anew."""


@dataclass(slots=True)
class _Server:
    port: str
    address: str
    owes_since: float | None = None
    """Since when it has been asked and has said nothing."""
    refused: str = ""


class Shotgun(BaseCore):
    """Model 2's caller. A `CallerCore`.

    Args:
        addresses: of the servers.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._addresses = tuple(addresses)
        servers = [_Server(f"server {number}", address) for number, address in enumerate(self._addresses, start=1)]
        self._servers = {server.port: server for server in servers}
        self._calls = Calls()

    def start(self, now: float) -> None:
        """Connect to all servers."""
        for server in self._servers.values():
            self._sends.append(Dial(server.port, server.address))

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. Ends by Answered, GivenUp or ShutOut."""
        self._send(self._calls.add(token, body, patience, now), now)

    def cancel(self, token: int, now: float) -> None:
        """Nobody waits for the answer any more."""
        self._calls.cancel(token)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A reply came: the first to a request is its answer."""
        try:
            reply = decode_sequenced(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        number = decode_number(reply.control)
        if number is None or not 0 < number <= self._calls.last:
            self.counters["unasked"] += 1
            return
        self._servers[port].owes_since = None
        call = self._calls.end(number)
        if call is None:
            self.counters["duplicate"] += 1  # Of another server, or too late.
            return
        self.counters["answered"] += 1
        self._events.append(Answered(call.token, reply.body))

    def refused(self, port: str, reason: str, now: float) -> None:
        """A server does not let us in; where all of them do not, every call ends."""
        super().refused(port, reason, now)
        if port in self._servers:
            self._servers[port].refused = reason
        if reason and all(server.refused for server in self._servers.values()):
            for call in self._calls.under_way():
                self._give_up(call, now)

    def timer(self) -> float | None:
        """When a try is over."""
        return self._calls.timer()

    def tick(self, now: float) -> None:
        """Ask all once more for what is due, or give it up."""
        for call in self._calls.due(now):
            if now >= call.ends or call.tries >= call.patience.tries:
                self._give_up(call, now)
                continue
            call.tries += 1
            self.counters["retried"] += 1
            self._calls.try_until(call, now + call.patience.try_seconds)
            self._send(call, now)

    def _send(self, call: Call, now: float) -> None:
        frames = encode_sequenced(encode_number(call.number), call.body)
        for server in self._servers.values():
            if server.owes_since is None:
                server.owes_since = now
            elif now - server.owes_since >= SILENT_SECONDS:
                self._sends.append(Dial(server.port, server.address))
                server.owes_since = now
            self._sends.append(Send(server.port, b"", frames))

    def _give_up(self, call: Call, now: float) -> None:
        self._calls.end(call.number)
        self.counters["given_up"] += 1
        reasons = [server.refused for server in self._servers.values()]
        if all(reasons):
            self._events.append(ShutOut(call.token, reasons[0]))
        else:
            self._events.append(GivenUp(call.token, call.tries, now - call.begun, self._addresses))
