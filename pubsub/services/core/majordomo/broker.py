"""The Majordomo broker: it passes requests of clients to workers by service, and replies back (RFC 7, RFC 18, RFC 8).

The table has the state of a peer as a worker, and the effect of each of its messages. D: the broker sends DISCONNECT,
and ignores the peer until it sends READY again. g.: its request is given up.

    |              | READY       | reply, its client's | another reply | HEARTBEAT | DISCONNECT  | not valid |
    | unknown      | idle        | D                   | D             | D         |             |           |
    | idle         | D           | D                   | D             | idle      | unknown     | unknown   |
    | busy         | D, given up | forwarded, idle     | D, given up   | busy      | unknown, g. | unknown, g. |
    | disconnected | idle        |                     |               |           | unknown     |           |

READY for a reserved name (`mmi.…`) is always answered with D. A silent worker is unknown, and so is a worker to which
nothing can be sent. The request of a lost worker is *given up*: the worker may have done it, so no other worker gets
it. Its client may ask again. Only a request that the socket did not accept goes to another worker.

The protocol has no message about refused or given up requests. The broker counts them, and the client finds out by its
own time-out. The broker remembers nothing of a client without a request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.services.core.interface import Asked, BaseCore, Frames, Noticed, Send
from pubsub.services.core.majordomo import management
from pubsub.services.core.majordomo.backlog import REQUEST_BYTES, Backlog
from pubsub.services.core.majordomo.messages import (
    MANAGEMENT,
    ClientDialect,
    WorkerDialect,
    dialect_of,
    is_name,
    wrong_with_reply,
    wrong_with_request,
)
from pubsub.services.core.majordomo.presence import Presence
from pubsub.services.core.majordomo.records import Request, Service, Worker

PORT: Final = "broker"

DISCONNECTED_MAX: Final = 10_000
"""Disconnected workers that are remembered, for as long as a worker may be silent."""


@dataclass(frozen=True)
class BrokerLimits:
    """Time and size limits of a broker.

    Attributes:
        heartbeat_seconds: interval between heartbeats to a worker that gets nothing else.
        liveness: silent intervals after which a worker counts as dead.
        request_seconds: time that a request may wait for a worker.
        requests_max: waiting requests of one service.
        waiting_bytes_max: bytes of all waiting requests, and of kept parts of replies.
        services_max: services with workers or waiting requests.
        workers_max: registered workers.
    """

    heartbeat_seconds: float = 2.5
    liveness: int = 3
    request_seconds: float = 60.0
    requests_max: int = 10_000
    waiting_bytes_max: int = 256 * 1024 * 1024
    services_max: int = 10_000
    workers_max: int = 20_000


class Broker(BaseCore):
    """A broker at one ROUTER, for both versions of the protocol.

    Attributes:
        services: services with workers or waiting requests, by name.
        workers: registered workers, by routing ID.
    """

    def __init__(self, limits: BrokerLimits | None = None) -> None:
        super().__init__()
        self._limits = limits or BrokerLimits()
        self.services: dict[bytes, Service] = {}
        self.workers: dict[bytes, Worker] = {}
        self.backlog = Backlog(self._limits.requests_max, self._limits.waiting_bytes_max)
        self._presence = Presence(self._limits.heartbeat_seconds, self._limits.liveness)
        self._disconnected: OrderedDict[bytes, float] = OrderedDict()
        self._parts_bytes = 0

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        dialect = dialect_of(frames)
        if type(dialect) is ClientDialect:
            at = dialect.body_at
            if len(frames) <= at or (dialect.version == 2 and frames[at - 2] != b"\x01"):
                self.counters["invalid_request_" + wrong_with_request(dialect, frames)] += 1
                return
            request = Request(peer, dialect, tuple(frames[at:]), now + self._limits.request_seconds)
            self._request(frames[at - 1], request, now)
        elif type(dialect) is WorkerDialect:
            self._command(peer, dialect, frames, now)
        else:
            self.counters["invalid_header"] += 1

    # Clients

    def _request(self, name: bytes, request: Request, now: float) -> None:
        service = self.services.get(name)
        if service is None:
            if name.startswith(MANAGEMENT):
                self._manage(name, request, now)
                return
            service = self._add_service(name, "request")
            if service is None:
                return
        if service.idle:
            self._assign(service.idle.popitem(last=False)[1], request, now)
        elif not self.backlog.add(service, request):
            self.counters["requests_refused"] += 1
            self._drop_if_unused(service)

    def _manage(self, name: bytes, request: Request, now: float) -> None:
        self.counters["managed"] += 1
        self._answer(request, name, management.answer(name, request.body, self, request.client, now))

    def _answer(self, request: Request, name: bytes, body: Frames) -> None:
        self._sends.append(Send(PORT, request.client, (*request.dialect.final, name, *body)))

    def _assign(self, worker: Worker, request: Request, now: float) -> None:
        worker.request, worker.sent, request.begun = request, now, now
        self._sends.append(Send(PORT, worker.peer, (*worker.dialect.to_worker, request.client, b"", *request.body)))

    # Workers

    def _command(self, peer: bytes, dialect: WorkerDialect, frames: Sequence[bytes], now: float) -> None:
        at = dialect.command_at
        command = frames[at] if len(frames) > at else b""
        worker = self.workers.get(peer)
        if command == dialect.final or (command and command == dialect.partial):
            if wrong := wrong_with_reply(dialect, frames):
                self._invalid(worker, "reply_" + wrong)
            elif (
                worker is None
                or worker.dialect is not dialect
                or worker.request is None
                or worker.request.client != frames[at + 1]
            ):
                self._unexpected(peer, worker, dialect, "replies_unexpected", now)
            elif command == dialect.final:
                worker.received_at = now
                self._finish(worker, worker.request, tuple(frames[at + 3 :]), now)
            else:
                worker.received_at = now
                self._forward_part(worker, worker.request, tuple(frames[at + 3 :]))
        elif command == dialect.heartbeat:
            if len(frames) != at + 1:
                self._invalid(worker, "heartbeat")
            elif worker is None or worker.dialect is not dialect:
                self._unexpected(peer, worker, dialect, "heartbeats_unexpected", now)
            else:
                worker.received_at = now
        elif command == dialect.ready:
            self._ready(peer, worker, dialect, frames[at + 1 :], now)
        elif command == dialect.disconnect and len(frames) == at + 1:
            self._disconnected.pop(peer, None)
            if worker is not None:
                self._remove(worker, "workers_left", now)
        else:
            self._invalid(worker, "command")

    def _finish(self, worker: Worker, request: Request, body: Frames, now: float) -> None:
        """Pass a reply on. The worker gets its next request before the client gets the reply."""
        service = worker.service
        service.answered += 1
        if service.requests:
            self._assign(worker, self.backlog.take(service), now)
        else:
            worker.request = None
            service.idle[worker.peer] = worker
        if request.parts is not None:
            self._parts_bytes -= request.parts_bytes
            body = (*request.parts, *body)
        if request.complete:
            self._answer(request, service.name, body)

    def _forward_part(self, worker: Worker, request: Request, body: Frames) -> None:
        if request.dialect.partial is not None:
            frames = (*request.dialect.partial, worker.service.name, *body)
            self._sends.append(Send(PORT, request.client, frames))
            return
        # The client's version has no parts: it gets one reply with all frames in order.
        size = REQUEST_BYTES + sum(map(len, body))
        if self._parts_bytes + size > self._limits.waiting_bytes_max:
            if request.complete:
                self.counters["requests_given_up"] += 1
            request.complete = False
        if not request.complete:
            return
        request.parts = request.parts if request.parts is not None else []
        request.parts += body
        request.parts_bytes += size
        self._parts_bytes += size

    def _ready(
        self, peer: bytes, worker: Worker | None, dialect: WorkerDialect, names: Sequence[bytes], now: float
    ) -> None:
        if len(names) != 1 or not is_name(names[0]):
            self._invalid(worker, "ready")
        elif worker is not None:
            self._unexpected(peer, worker, dialect, "readies_unexpected", now)
        elif names[0].startswith(MANAGEMENT):
            self._unexpected(peer, worker, dialect, "readies_reserved", now)
        elif len(self.workers) >= self._limits.workers_max:
            self._unexpected(peer, worker, dialect, "workers_refused", now)
        elif (service := self.services.get(names[0]) or self._add_service(names[0], "ready")) is not None:
            self._disconnected.pop(peer, None)
            self.counters["workers_ready"] += 1
            worker = self.workers[peer] = Worker(peer, dialect, service, now)
            service.workers += 1
            self._presence.add(worker, now)
            if service.requests:
                self._assign(worker, self.backlog.take(service), now)
            else:
                service.idle[peer] = worker
        else:
            self._dismiss(peer, dialect, now)

    def _invalid(self, worker: Worker | None, reason: str) -> None:
        """Drop an invalid message, and remove its sender from the workers."""
        self.counters["invalid_" + reason] += 1
        if worker is not None:
            self._remove(worker, "workers_invalid", worker.received_at)

    def _unexpected(self, peer: bytes, worker: Worker | None, dialect: WorkerDialect, name: str, now: float) -> None:
        """Handle a valid message in the wrong state: its sender must register again."""
        self.counters[name] += 1
        if worker is not None:
            self._remove(worker, "workers_dismissed", now)
        if worker is not None or peer not in self._disconnected or name.startswith("readies_"):
            self._dismiss(peer, dialect, now)

    def _dismiss(self, peer: bytes, dialect: WorkerDialect, now: float) -> None:
        """Send DISCONNECT, and nothing more until the peer sends READY."""
        self._disconnected.pop(peer, None)
        self._disconnected[peer] = now
        if len(self._disconnected) > DISCONNECTED_MAX:
            self._disconnected.popitem(last=False)
        self._sends.append(Send(PORT, peer, dialect.bye))

    def _remove(self, worker: Worker, counter: str, now: float) -> None:
        """Remove a worker, and give up its request."""
        self.counters[counter] += 1
        service, request = worker.service, worker.request
        del self.workers[worker.peer]
        self._presence.remove(worker)
        service.workers -= 1
        service.idle.pop(worker.peer, None)
        if request is not None:
            self.counters["requests_given_up"] += 1
            service.given_up += 1
            self._parts_bytes -= request.parts_bytes
            self._notice(
                service, f"a worker of {name(service)} is lost; its request is given up, and the caller may repeat it"
            )
        self._drop_if_unused(service)

    # Services

    def _add_service(self, name: bytes, counter: str) -> Service | None:
        if not is_name(name):
            self.counters[f"invalid_{counter}_name"] += 1
            return None
        if len(self.services) >= self._limits.services_max:
            self.counters["services_refused"] += 1
            return None
        service = self.services[name] = Service(name)
        return service

    def _drop_if_unused(self, service: Service) -> None:
        if not service.workers and not service.requests:
            self.services.pop(service.name, None)

    def _notice(self, service: Service, text: str) -> None:
        self._events.append(Noticed(text, warning=True))

    # Time, and reports of the shell

    def tick(self, now: float) -> None:
        """Send heartbeats, remove silent workers, drop expired requests."""
        if self._presence.due <= now:
            self._look_at_workers(now)
            patience = self._presence.patience
            while self._disconnected and now - next(iter(self._disconnected.values())) >= patience:
                self._disconnected.popitem(last=False)
        if self.backlog.due <= now:
            for service, count in self.backlog.expire(now):
                self.counters["requests_expired"] += count
                self._notice(
                    service,
                    f"{count} requests to {name(service)} got no worker in time and are dropped: start more workers",
                )
                self._drop_if_unused(service)

    def _look_at_workers(self, now: float) -> None:
        presence = self._presence
        for worker in presence.take(now):
            silent = presence.silent(worker, now)
            if not silent and presence.beat_due(worker, now):
                worker.sent = now
                self._sends.append(Send(PORT, worker.peer, worker.dialect.beat))
            presence.add(worker, now)
            if silent:
                self._remove(worker, "workers_silent", now)

    def timer(self) -> float | None:
        due = min(self._presence.due, self.backlog.due)
        return due if due < float("inf") else None

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Remove a worker to which the socket could not send. An unsent request goes to another worker."""
        worker = self.workers.get(send.peer)
        if worker is None:
            self.counters["replies_undelivered"] += 1
            return
        request = worker.request
        if request is not None and send.frames[worker.dialect.command_at] == worker.dialect.request:
            worker.request = None
            service = worker.service
            self.backlog.put_back(service, request)
            self._remove(worker, "workers_lost", now)
            if service.idle:
                self._assign(service.idle.popitem(last=False)[1], self.backlog.take(service), now)
        else:
            self._remove(worker, "workers_lost", now)

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """A request needs the right to call its service, READY the right to serve it."""
        dialect = dialect_of(frames)
        if type(dialect) is ClientDialect:
            wanted = frames[dialect.body_at - 1] if len(frames) > dialect.body_at else b""
            return None if wanted.startswith(MANAGEMENT) else Asked("call", wanted.decode(errors="replace"))
        if type(dialect) is WorkerDialect:
            command = frames[dialect.command_at : dialect.command_at + 2]
            if len(command) == 2 and command[0] == dialect.ready:
                return Asked("serve", command[1].decode(errors="replace"))
        return None

    def leave(self, now: float) -> None:
        """Send DISCONNECT to the workers, so that they look for another broker at once."""
        for worker in self.workers.values():
            self._sends.append(Send(PORT, worker.peer, worker.dialect.bye))


def name(service: Service) -> str:
    """Return the name as text."""
    return service.name.decode(errors="replace")
