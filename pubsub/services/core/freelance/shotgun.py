"""Freelance, model 2: the caller asks all servers at once and takes the first reply (the Guide, chapter 4).

Every server does every request, and all replies but one are dropped. In return, a dead server costs no time. Each
server has a DEALER of its own, and so gets one copy. The Guide uses one DEALER for all servers. It sends copies in
turn, and gives one server two copies while another is away.

A copy for a server that is away waits in its socket. A server with no reply for SILENT_SECONDS is dialled again. That
drops the waiting copies, so that a server that returns does not begin with requests that have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.errors import DecodeError
from pubsub.services.core.freelance.calls import Call, Calls
from pubsub.services.core.freelance.codec import decode_number, decode_sequenced, encode_number, encode_sequenced
from pubsub.services.core.interface import AccessRefused, Answered, BaseCore, Dial, Frames, GivenUp, Patience, Send

SILENT_SECONDS: Final = 10.0
"""Time without a reply after which a server is dialled again."""


@dataclass(slots=True)
class _Server:
    port: str
    address: str
    owes_since: float | None = None
    """Time of the first request since the last reply."""
    refused: str = ""


class Shotgun(BaseCore):
    """The caller of model 2. A `CallerCore`."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._addresses = tuple(addresses)
        servers = [_Server(f"server {number}", address) for number, address in enumerate(self._addresses, start=1)]
        self._servers = {server.port: server for server in servers}
        self._calls = Calls()

    def start(self, now: float) -> None:
        for server in self._servers.values():
            self._sends.append(Dial(server.port, server.address))

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. The call ends with Answered, GivenUp or AccessRefused."""
        self._send(self._calls.add(token, body, patience, now), now)

    def cancel(self, token: int, now: float) -> None:
        self._calls.cancel(token)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """Take the first reply to a request, and drop further ones."""
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
            self.counters["duplicate"] += 1  # A reply of another server, or a late one.
            return
        self.counters["answered"] += 1
        self._events.append(Answered(call.token, reply.body))

    def refused(self, port: str, reason: str, now: float) -> None:
        """Note that a server refuses this process. If all servers do, every call ends."""
        super().refused(port, reason, now)
        if port in self._servers:
            self._servers[port].refused = reason
        if reason and all(server.refused for server in self._servers.values()):
            for call in self._calls.under_way():
                self._give_up(call, now)

    def timer(self) -> float | None:
        return self._calls.timer()

    def tick(self, now: float) -> None:
        """Repeat the calls with an ended try at all servers, or give them up."""
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
            self._events.append(AccessRefused(call.token, reasons[0]))
        else:
            self._events.append(GivenUp(call.token, call.tries, now - call.begun, self._addresses))
