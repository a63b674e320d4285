"""Freelance, model 3: the caller knows which servers are alive, and asks one of them (ZeroMQ RFC 10).

The caller pings each server. A server is alive if it has answered within SERVER_TTL_SECONDS. A call goes to the first
live server in the order of the addresses. It goes to the next one if no reply comes in time or the server is lost. The
number of the call stays the same, so the first reply of any server ends it. While no server is alive a call waits,
within its time limit.

A server that is not alive is dialled again each time SERVER_TTL_SECONDS pass. That drops the pings in the queue, of
which it would otherwise get one for each 2 s of its absence.
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
from pubsub.services.core.interface import (
    NEVER,
    AccessRefused,
    Answered,
    BaseCore,
    Dial,
    Frames,
    GivenUp,
    Patience,
    Send,
)

PING_SECONDS: Final = 2.0
"""Silence after which a server is pinged; the Guide's value."""

SERVER_TTL_SECONDS: Final = 6.0
"""Silence after which a server counts as lost; the Guide's value."""


@dataclass(slots=True)
class _Server:
    port: str
    address: str
    ping_at: float = NEVER
    expires: float = NEVER
    there: bool = False
    refused: str = ""


class Tracked(BaseCore):
    """The caller of model 3. A `CallerCore`.

    Args:
        addresses: of the servers, the preferred one first.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._addresses = tuple(addresses)
        self._servers = [_Server(f"server {number}", one) for number, one in enumerate(self._addresses, start=1)]
        self._by_port = {server.port: server for server in self._servers}
        self._calls = Calls()

    def start(self, now: float) -> None:
        for server in self._servers:
            self._dial(server, now)

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. The call ends with Answered, GivenUp or AccessRefused."""
        self._ask(self._calls.add(token, body, patience, now))

    def cancel(self, token: int, now: float) -> None:
        self._calls.cancel(token)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
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
            self.counters["duplicate"] += 1  # A second server was asked, or the call has ended.
        else:
            self.counters["answered"] += 1
            self._events.append(Answered(call.token, reply.body))
        self._heard(self._by_port[port], now)

    def refused(self, port: str, reason: str, now: float) -> None:
        """Note that a server refuses this process. If all servers do, every call ends."""
        super().refused(port, reason, now)
        if port in self._by_port:
            self._by_port[port].refused = reason
        if reason and all(server.refused for server in self._servers):
            for call in self._calls.under_way():
                self._give_up(call, now)

    def ended(self, port: str, now: float) -> None:
        """Count a server as lost until it answers again, since its connection has ended."""
        server = self._by_port.get(port)
        if server is not None and server.there:
            self._gone(server, now)

    def timer(self) -> float | None:
        due = min(min(server.ping_at, server.expires) for server in self._servers)
        call = self._calls.timer()
        return due if call is None else min(due, call)

    def tick(self, now: float) -> None:
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
        """Send a call to the next live server after its last one. Without a live server the call waits."""
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
        """Count a server as lost: dial it again, and send its calls to another server."""
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
            self._events.append(AccessRefused(call.token, reasons[0]))
        else:
            self._events.append(GivenUp(call.token, call.tries, now - call.begun, self._addresses))
