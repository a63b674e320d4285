"""A Majordomo worker: one connection to one broker, one service, one request at a time (RFC 7, RFC 18).

It registers on a new socket each time: after DISCONNECT, after the broker was silent, and after a failed request. The
protocol has no error reply, and a worker that owes a reply gets no further request. A worker that is busy with a
request of an earlier connection does not register, so no request has to wait for it.

    |                 | REQUEST    | HEARTBEAT      | DISCONNECT     | silence        | reply, fail               |
    | registered      | works      | noted          | registers anew | registers anew |                           |
    | works           | works on   | noted          | off            | works on       | sent, registered · anew   |
    | off, still busy |            |                |                |                | dropped, registers anew   |
    | waits to dial   |            |                |                |                |                           |

An idle worker that *stood still* (`heartbeats`) registers anew and drops the messages in its socket. The broker has
given it up, and its requests may be with another worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.services.core.heartbeats import Heartbeats
from pubsub.services.core.interface import BaseCore, Dial, Frames, HangUp, Noticed, Requested, Send
from pubsub.services.core.majordomo.messages import WORKER_DIALECTS, ready, reply, wrong_with_reply

REQUESTS_MAX: Final = 16
"""Requests that a worker holds at a time. A broker that follows the protocol sends one."""


@dataclass(frozen=True)
class WorkerTimes:
    """Time limits of a worker.

    Attributes:
        heartbeat_seconds: interval between heartbeats to the broker if nothing else is sent.
        liveness: silent intervals after which the broker counts as dead.
        reconnect_seconds: shortest time between two registrations, except for the first one after a while.
    """

    heartbeat_seconds: float = 2.5
    liveness: int = 3
    reconnect_seconds: float = 2.5


class MajordomoWorker(BaseCore):
    """A worker of one service. A `WorkerCore`.

    Args:
        version: version of the protocol, 1 or 2.
        port: name of the connection.
        token: token of its first request; each further one is one more.
    """

    def __init__(
        self,
        service: str,
        address: str,
        version: int = 1,
        times: WorkerTimes | None = None,
        port: str = "worker",
        token: int = 1,
    ) -> None:
        super().__init__()
        self._service, self._address, self._port = service, address, port
        self._dialect, self._times = WORKER_DIALECTS[version], times or WorkerTimes()
        self._heartbeats = Heartbeats(self._times.heartbeat_seconds, self._times.liveness)
        self._next_token = token
        self._connected = False
        self._connection = 0
        self._dialled_at = float("-inf")
        self._dial_at: float | None = None
        self._requests: dict[int, tuple[int, bytes, list[bytes]]] = {}
        """Token -> connection of the request, the client's address, and parts that are kept for the last one."""

    def start(self, now: float) -> None:
        self._dial(now)

    def _dial(self, now: float) -> None:
        self._dial_at, self._dialled_at = None, now
        self._connected = True
        self._connection += 1
        self._heartbeats.begin(now)
        self._sends.append(Dial(self._port, self._address))
        self._sends.append(Send(self._port, b"", ready(self._dialect, self._service.encode())))

    def _leave(self, now: float, soonest: float) -> None:
        """Close this connection. Register anew at `soonest` or later, once no request is under way."""
        if self._connected:
            self._sends.append(HangUp(self._port))
        self._connected = False
        self._dial_at = max(soonest, self._dialled_at + self._times.reconnect_seconds)
        self._dial_if_due(now)

    def _dial_if_due(self, now: float) -> None:
        if self._dial_at is not None and now >= self._dial_at and not self._requests:
            self._dial(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        dialect = self._dialect
        at = dialect.command_at
        if not self._connected or len(frames) <= at or tuple(frames[:at]) != dialect.lead:
            self.counters["invalid_header"] += 1
            return
        command = frames[at]
        if not self._requests and self._stood_still(now):
            return
        if command == dialect.request:
            if wrong := wrong_with_reply(dialect, frames):
                self.counters["invalid_request_" + wrong] += 1
                return
            if self._heartbeats.received(now):
                self._beat(now)
            if len(self._requests) >= REQUESTS_MAX:
                self.counters["requests_refused"] += 1
                return
            token, self._next_token = self._next_token, self._next_token + 1
            self._requests[token] = self._connection, frames[at + 1], []
            self.counters["requests"] += 1
            self._events.append(Requested(token, tuple(frames[at + 3 :]), self._service))
        elif command == dialect.heartbeat and len(frames) == at + 1:
            if self._heartbeats.heard_beat(now):
                self._beat(now)
        elif command == dialect.disconnect and len(frames) == at + 1:
            self.counters["disconnected"] += 1
            self._leave(now, now)
        else:
            self.counters["invalid_command"] += 1

    def _stood_still(self, now: float) -> bool:
        """Register anew if a pause of this worker was so long that the broker has given it up. Return True if so."""
        seconds = self._heartbeats.stood_still(now)
        if seconds:
            self.counters["stood_still"] += 1
            self._events.append(Noticed(f"this worker was paused for {seconds:.3g} s; it registers anew", warning=True))
            self._leave(now, now)
        return seconds > 0

    def _beat(self, now: float) -> None:
        self._heartbeats.said = now
        self._sends.append(Send(self._port, b"", self._dialect.beat))

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request, unless it is unknown by now."""
        connection, client, parts = self._requests.pop(token, (0, b"", []))
        if connection and not self._requests:
            self._heartbeats.idle(now)
        if connection == self._connection and self._connected:
            self._heartbeats.said = now
            frames = reply(self._dialect, self._dialect.final, client, (*parts, *body) or (b"",))
            self._sends.append(Send(self._port, b"", frames))
            self.counters["replied"] += 1
        elif connection:
            self.counters["replies_late"] += 1
            self._dial_if_due(now)

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Send a part of the reply. Version 0.1 has no parts, so the part is kept until `reply`."""
        connection, client, parts = self._requests.get(token, (0, b"", []))
        if not self._dialect.partial:
            parts.extend(body)
        elif connection == self._connection and self._connected:
            self._heartbeats.said = now
            self._sends.append(Send(self._port, b"", reply(self._dialect, self._dialect.partial, client, body)))

    def fail(self, token: int, reason: str, now: float) -> None:
        """Register anew after a failed handler: the protocol has no error reply, so the client gets none."""
        connection, _, _ = self._requests.pop(token, (0, b"", []))
        if not connection:
            return
        self.counters["failed"] += 1
        if connection == self._connection and self._connected:
            self._dialled_at = float("-inf")
            self._leave(now, now)
        else:
            self._dial_if_due(now)

    def ended(self, port: str, now: float) -> None:
        """Register anew, since the next process at this address may not know this worker."""
        if self._connected:
            self.counters["connections_ended"] += 1
            self._leave(now, now)

    def tick(self, now: float) -> None:
        """Send a heartbeat, give up a silent broker, or register anew."""
        if not self._connected:
            self._dial_if_due(now)
        elif not self._requests and self._stood_still(now):  # Messages of the broker may still be unread.
            return
        elif not self._requests and self._heartbeats.silent(now):
            self.counters["broker_silent"] += 1
            self._events.append(
                Noticed(f"the broker at {self._address} is silent; this worker registers anew", warning=True)
            )
            self._heartbeats.give_up()
            self._leave(now, now)
        elif self._heartbeats.beat_due(now):
            self._beat(now)

    def timer(self) -> float | None:
        """Time of the next `tick`; None: not before a reply."""
        if self._connected:
            return self._heartbeats.due(busy=bool(self._requests))
        return None if self._requests else self._dial_at

    def leave(self, now: float) -> None:
        if self._connected:
            self._connected = False
            self._sends.append(Send(self._port, b"", self._dialect.bye))
