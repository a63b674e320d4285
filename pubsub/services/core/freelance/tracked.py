"""Freelance, model 3: the caller knows which servers are there, and asks one of those (ZeroMQ RFC 10).

It pings each server. Who has answered within SERVER_TTL_SECONDS is there. A call goes to the first of them in the order
in which they were named, and to the next one where no reply comes in time or the server is found to be gone: the number
stays the same, so whichever of them answers first has answered. While nobody is there a call waits, for as long as it
may.

A server that is not there is dialled anew as often as its time to live runs out: that drops the pings that wait for it,
of which it would else get one for each 2 s that it was away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.errors import DecodeError
from pubsub.services.core.freelance.calls import Call, Calls
from pubsub.services.core.freelance.codec import (
    PING,
    PONG,
    decode_controlled,
    decode_number,
    encode_controlled,
    encode_number,
)
from pubsub.services.core.interface import NEVER, Answered, BaseCore, Dial, Frames, GivenUp, Patience, Send, ShutOut

PING_SECONDS: Final = 2.0
"""Silence after which a server is pinged; the Guide's."""

SERVER_TTL_SECONDS: Final = 6.0
"""Silence after which a server counts as gone; the Guide's."""


@dataclass(slots=True)
class _Server:
    port: str
    address: str
    ping_at: float = NEVER
    expires: float = NEVER
    there: bool = False
    refused: str = ""


class Tracked(BaseCore):
    """Model 3's caller. A `CallerCore`.

    Args:
        addresses: of the servers, the one to prefer first.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._addresses = tuple(addresses)
        self._servers = [_Server(f"server {number}", one) for number, one in enumerate(self._addresses, start=1)]
        self._by_port = {server.port: server for server in self._servers}
        self._calls = Calls()

    def start(self, now: float) -> None:
        """Connect to all servers, and ask which of them are there."""
        for server in self._servers:
            self._dial(server, now)

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. Ends by Answered, GivenUp or ShutOut."""
        self._ask(self._calls.add(token, body, patience, now))

    def cancel(self, token: int, now: float) -> None:
        """Nobody waits for the answer any more."""
        self._calls.cancel(token)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A PONG or a reply came."""
        if len(frames) == 1 and frames[0] == PONG:
            self.counters["ponged"] += 1
            self._heard(self._by_port[port], now)
            return
        try:
            reply = decode_controlled(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        number = decode_number(reply.control)
        if number is None or not 0 < number <= self._calls.last:
            self.counters["unasked"] += 1
            return
        call = self._calls.end(number)
        if call is None:
            self.counters["duplicate"] += 1  # Two servers were asked, or nobody waits any more.
        else:
            self.counters["answered"] += 1
            self._events.append(Answered(call.token, reply.body))
        self._heard(self._by_port[port], now)

    def refused(self, port: str, reason: str, now: float) -> None:
        """A server does not let us in; where all of them do not, every call ends."""
        super().refused(port, reason, now)
        if port in self._by_port:
            self._by_port[port].refused = reason
        if reason and all(server.refused for server in self._servers):
            for call in self._calls.under_way():
                self._give_up(call, now)

    def ended(self, port: str, now: float) -> None:
        """The connection to a server has ended: it is gone until it answers again."""
        server = self._by_port.get(port)
        if server is not None and server.there:
            self._gone(server, now)

    def timer(self) -> float | None:
        """When a try is over, a ping is due, or a server's time to live is over."""
        due = min(min(server.ping_at, server.expires) for server in self._servers)
        call = self._calls.timer()
        return due if call is None else min(due, call)

    def tick(self, now: float) -> None:
        """Do what is due."""
        for server in self._servers:
            if now >= server.expires:
                self._gone(server, now)
            elif now >= server.ping_at:
                self._ping(server, now)
        for call in self._calls.due(now):
            if now >= call.ends or call.tries >= call.patience.tries:
                self._give_up(call, now)
                continue
            call.tries += 1
            self.counters["retried"] += 1
            self._calls.try_until(call, now + call.patience.try_seconds)
            self._ask(call)

    def _ask(self, call: Call) -> None:
        """Send a call to the next server that is there after the one it was sent to; where none is it waits."""
        there = [number for number, server in enumerate(self._servers) if server.there]
        if not there:
            call.at = -1
            return
        call.at = next((number for number in there if number > call.at), there[0])
        frames = encode_controlled(encode_number(call.number), call.body)
        self._sends.append(Send(self._servers[call.at].port, b"", frames))

    def _heard(self, server: _Server, now: float) -> None:
        server.ping_at, server.expires = now + PING_SECONDS, now + SERVER_TTL_SECONDS
        if server.there:
            return
        server.there = True
        self.counters["found"] += 1
        for call in self._calls.under_way():
            if call.at == -1:
                self._ask(call)

    def _gone(self, server: _Server, now: float) -> None:
        """Nothing is heard of a server: it is dialled anew, and what it was asked is asked of another."""
        if server.there:
            self.counters["lost"] += 1
        server.there = False
        self._dial(server, now)
        gone = self._servers.index(server)
        for call in self._calls.under_way():
            if call.at == gone:
                self._calls.try_until(call, now + call.patience.try_seconds)
                self._ask(call)

    def _dial(self, server: _Server, now: float) -> None:
        server.expires = now + SERVER_TTL_SECONDS
        self._sends.append(Dial(server.port, server.address))
        self._ping(server, now)

    def _ping(self, server: _Server, now: float) -> None:
        server.ping_at = now + PING_SECONDS
        self._sends.append(Send(server.port, b"", (PING,)))

    def _give_up(self, call: Call, now: float) -> None:
        self._calls.end(call.number)
        self.counters["given_up"] += 1
        reasons = [server.refused for server in self._servers]
        if all(reasons):
            self._events.append(ShutOut(call.token, reasons[0]))
        else:
            self._events.append(GivenUp(call.token, call.tries, now - call.begun, self._addresses))
