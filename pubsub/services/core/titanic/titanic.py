"""Titanic: it stores each request before it accepts it, runs it when a worker is free, and stores the reply.

To the broker, Titanic is several workers of each of its services (`protocol`), and a client. Its answers depend on the
disk. It leaves a change in `take_changes`, and sends the answer when the shell reports that the change was `written`.
So a request is on disk before its client gets the ID, and a reply is on disk before a client receives it. After a kill
at any time there are two cases. The request is on disk, and runs until it has a reply. Or its client has no answer, and
asks again with the same key.

A request may run more than once, if a worker, the broker or Titanic dies before the reply is on disk. It is not sent
again once its reply is on disk. While the broker answers that it or a worker has the request, Titanic waits for a late
reply.

Titanic keeps everything for `keep_seconds` of its *age*: the sum of its running times over all starts, by the monotonic
clock, stored on disk. A change of the wall clock has no effect. Nothing ages while Titanic is down and cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.services.core.interface import NEVER, BaseCore, Core, Frames, Requested, Send
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.majordomo.client import majordomo_caller
from pubsub.services.core.majordomo.worker import MajordomoWorker, WorkerTimes
from pubsub.services.core.titanic import protocol
from pubsub.services.core.titanic.carrying import PORT_LEAD, Carrier
from pubsub.services.core.titanic.protocol import ERROR, OK, PENDING, UNKNOWN
from pubsub.services.core.titanic.requests import (
    Accepted,
    Aged,
    Change,
    Closed,
    Entry,
    Expired,
    Load,
    Replied,
    Requests,
    State,
)
from pubsub.services.core.titanic.running import Running

WORKERS: Final = {protocol.REQUEST: 8, protocol.REPLY: 4, protocol.CLOSE: 2}
"""Connections per service. A worker has one request at a time, so that many requests can share a commit."""

AGE_SECONDS: Final = 60.0
"""Interval at which the age is stored if nothing else is."""

EXPIRED_MAX: Final = 1_000
"""Requests that expire in one commit."""

AGAIN_SECONDS: Final = 1.0
"""Time after which a change is tried again that the disk did not accept."""

Waiter = tuple[MajordomoWorker, int]
"""A question that waits for an answer: the worker that received it, and its token."""


@dataclass(frozen=True)
class TitanicLimits:
    """Time and size limits of Titanic.

    Attributes:
        reply_seconds: expected time of a reply; after it the broker is asked whether it still has the request.
        parallel: requests that run at a time.
        keep_seconds: time for which a request, its reply and its key are kept, in Titanic's age.
        requests_max: requests that are kept.
    """

    reply_seconds: float = 30.0
    parallel: int = 32
    keep_seconds: float = 7 * 86_400.0
    requests_max: int = 100_000


class Titanic(BaseCore):
    """Titanic, at one broker.

    Args:
        address: of the broker.
        new_id: returns 32 hexadecimal digits that cannot be guessed, new with each call.
        stored: the requests of the store, the oldest first.
        age: the stored age in seconds.
        times: of its connections to the broker.
    """

    def __init__(
        self,
        address: str,
        new_id: Callable[[], bytes],
        stored: Iterable[Entry] = (),
        age: float = 0.0,
        limits: TitanicLimits | None = None,
        times: WorkerTimes | None = None,
    ) -> None:
        super().__init__()
        self._new_id, self._age, self._limits = new_id, age, limits or TitanicLimits()
        self._started = 0.0
        self.requests = Requests()
        for entry in stored:
            self.requests.add(entry)
        self._workers: dict[str, MajordomoWorker] = {}
        for service, number in WORKERS.items():
            for index in range(number):
                port = f"{service} {index + 1}"
                self._workers[port] = MajordomoWorker(service, address, 1, times, port)
        self._caller: LockstepCaller = majordomo_caller([address])
        self._carrier = Carrier(address)
        self._running = Running(
            self._caller, self._carrier, self._limits.reply_seconds, self._limits.parallel, self.counters
        )
        self._changes: list[Change] = []
        self._loads: list[Load] = []
        self._accepting: dict[bytes, list[Waiter]] = {}
        self._closing: dict[bytes, list[Waiter]] = {}
        self._readers: dict[int, Waiter] = {}
        self._reads = 0
        self._again: list[Change] = []
        self._again_at = self._expire_at = NEVER
        self._age_at = NEVER

    def age(self, now: float) -> float:
        """Running time over all starts, in seconds."""
        return self._age + now - self._started

    def start(self, now: float) -> None:
        """Register with the broker, and run the requests without a reply."""
        self._started = now
        self._age_at = now + AGE_SECONDS
        for worker in self._workers.values():
            worker.start(now)
        for entry in self.requests.by_id.values():
            if entry.state is State.PENDING:
                self._running.add(entry, now)
        self._set_expiry(now)
        self._gather(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        self._of(port).receive(port, peer, frames, now)
        self._gather(now)

    def _of(self, port: str) -> Core:
        return self._carrier if port.startswith(PORT_LEAD) else self._workers.get(port) or self._caller

    def _connected(self) -> tuple[Core, ...]:
        return (*self._workers.values(), self._caller, self._carrier)

    def ended(self, port: str, now: float) -> None:
        self._of(port).ended(port, now)
        self._gather(now)

    def refused(self, port: str, reason: str, now: float) -> None:
        self._of(port).refused(port, reason, now)
        self._gather(now)

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Count the message only: its sender has a time-out."""
        self.counters["undelivered"] += 1

    def _gather(self, now: float) -> None:
        """Take the events of the connections, and pass on their messages."""
        for worker in self._workers.values():
            for event in worker.take_events():
                if isinstance(event, Requested):
                    self._asked(event.service, (worker, event.token), event.body, now)
                else:
                    self._events.append(event)
        for event in self._caller.take_events():
            self._running.take(event, now)
        for outcome in self._carrier.take_outcomes():
            replied = self._running.ended(outcome, now)
            if replied is not None:
                self._changes.append(Replied(*replied))
        self._loads += self._running.start(now)
        for core in self._connected():
            self._sends += core.take_sends()

    # Questions of clients

    def _asked(self, service: str, waiter: Waiter, body: Frames, now: float) -> None:
        self.counters[service] += 1
        if service == protocol.REQUEST:
            self._request(waiter, body, now)
        elif service == protocol.REPLY:
            self._reply(waiter, body, now)
        else:
            self._close(waiter, body, now)

    def _answer(self, waiter: Waiter, now: float, *frames: bytes) -> None:
        worker, token = waiter
        worker.reply(token, frames, now)

    def _request(self, waiter: Waiter, body: Frames, now: float) -> None:
        wanted = protocol.parse_request(body)
        if wanted is None:
            self._answer(waiter, now, UNKNOWN + b" not a request")
            return
        digest = protocol.digest(wanted) if wanted.key else b""
        known = self.requests.by_key.get(wanted.key) if wanted.key else None
        if known is not None and known.digest != digest:
            self._answer(waiter, now, UNKNOWN + b" the key is that of another request")
        elif known is not None and known.stored:
            self.counters["repeated"] += 1
            self._answer(waiter, now, OK, known.id)
        elif known is not None:
            self._accepting[known.id].append(waiter)
        elif len(self.requests.by_id) >= self._limits.requests_max:
            self.counters["requests_refused"] += 1
            self._answer(waiter, now, ERROR + b" too many requests are kept")
        else:
            entry = Entry(
                self._new_id(), wanted.service, wanted.key, digest, State.PENDING, self.age(now), stored=False
            )
            self.requests.add(entry)
            self._accepting[entry.id] = [waiter]
            self._changes.append(Accepted(entry, wanted.body))

    def _find(self, body: Frames) -> Entry | None:
        """Return the open request with the ID in `body`, or None."""
        name = protocol.parse_id(body)
        entry = self.requests.by_id.get(name) if name is not None else None
        return entry if entry is not None and entry.stored and entry.state is not State.CLOSED else None

    def _reply(self, waiter: Waiter, body: Frames, now: float) -> None:
        entry = self._find(body)
        if body == (protocol.NO_ID,):
            self._answer(waiter, now, OK, protocol.KEY_LEAD)
        elif entry is None or entry.closing:
            self._answer(waiter, now, UNKNOWN)
        elif entry.state is State.PENDING:
            self._answer(waiter, now, PENDING)
        else:
            self._reads -= 1  # Negative, since the tokens of runs are positive.
            self._readers[self._reads] = waiter
            self._loads.append(Load(entry, self._reads))

    def _close(self, waiter: Waiter, body: Frames, now: float) -> None:
        entry = self._find(body)
        if entry is None:
            self._answer(waiter, now, OK)
            return
        self._closing.setdefault(entry.id, []).append(waiter)
        if not entry.closing:
            entry.closing = True
            self._running.cancel(entry, now)
            self._changes.append(Closed(entry))

    # Results of the disk

    def take_changes(self) -> list[Change]:
        """Return the changes to store, in order, each once. Call `written` or `not_written` for each."""
        taken, self._changes = self._changes, []
        return taken

    def take_loads(self) -> list[Load]:
        """Return the bodies to read after the changes are stored. Call `loaded` for each."""
        taken, self._loads = self._loads, []
        return taken

    def written(self, change: Change, now: float) -> None:
        """Answer the clients that wait for a change, now that it is on disk."""
        if isinstance(change, Accepted):
            entry = change.entry
            entry.stored = True
            self.counters["accepted"] += 1
            for waiter in self._accepting.pop(entry.id):
                self._answer(waiter, now, OK, entry.id)
            self._running.add(entry, now)
        elif isinstance(change, Replied):
            if change.entry.state is State.PENDING:
                change.entry.state = State.REPLIED
                self.counters["replied"] += 1
        elif isinstance(change, Closed):
            self._closed(change.entry, now)
        elif isinstance(change, Expired):
            for entry in change.entries:
                self.requests.remove(entry)
            self.counters["expired"] += len(change.entries)
        self._set_expiry(now)
        self._gather(now)

    def _closed(self, entry: Entry, now: float) -> None:
        entry.state, entry.closing = State.CLOSED, False
        if not entry.key:
            self.requests.remove(entry)
        self.counters["closed"] += 1
        for waiter in self._closing.pop(entry.id, ()):
            self._answer(waiter, now, OK)

    def not_written(self, change: Change, now: float) -> None:
        """Answer the clients that wait with an error, since the disk is full. Try other changes again later."""
        self.counters["not_written"] += 1
        if isinstance(change, Accepted):
            self.requests.remove(change.entry)
            for waiter in self._accepting.pop(change.entry.id):
                self._answer(waiter, now, ERROR + b" the disk is full")
        elif isinstance(change, Closed):
            change.entry.closing = False
            if change.entry.state is State.PENDING and not self._replying(change.entry):
                self._running.add(change.entry, now)
            for waiter in self._closing.pop(change.entry.id, ()):
                self._answer(waiter, now, ERROR + b" the disk is full")
        elif isinstance(change, Replied):
            self._again.append(change)
            self._again_at = now + AGAIN_SECONDS
        self._expire_at = max(self._expire_at, now + AGAIN_SECONDS)
        self._gather(now)

    def _replying(self, entry: Entry) -> bool:
        """Whether the request has a reply that is not on disk yet."""
        waiting = (*self._again, *self._changes)
        return any(isinstance(change, Replied) and change.entry is entry for change in waiting)

    def loaded(self, load: Load, body: Frames | None, now: float) -> None:
        """Take a body; None: it is missing or damaged."""
        waiter = self._readers.pop(load.token, None)
        if waiter is not None:
            if body is not None:
                self._answer(waiter, now, OK, *body)
            else:
                self._answer(waiter, now, UNKNOWN if load.entry.state is State.CLOSED else ERROR)
        elif body is not None:
            self._running.loaded(load.token, body, now)
        else:
            self.counters["bodies_lost"] += 1
            self._running.lost(load.token)
        self._gather(now)

    # Time

    def _set_expiry(self, now: float) -> None:
        oldest = self.requests.oldest()
        left = NEVER if oldest is None else oldest.age + self._limits.keep_seconds - self.age(now)
        self._expire_at = now + max(0.0, left)

    def tick(self, now: float) -> None:
        for core in self._connected():
            due = core.timer()
            if due is not None and due <= now:
                core.tick(now)
        self._running.tick(now)
        if self._again_at <= now:
            self._changes += self._again
            self._again, self._again_at = [], NEVER
        if self._expire_at <= now:
            self._expire(now)
        if self._age_at <= now:
            self._age_at = now + AGE_SECONDS
            if self.requests.by_id:
                self._changes.append(Aged())
        self._gather(now)

    def _expire(self, now: float) -> None:
        young = self.age(now) - self._limits.keep_seconds
        expired: list[Entry] = []
        for entry in self.requests.by_id.values():
            if entry.age > young or len(expired) >= EXPIRED_MAX:
                break
            if entry.stored and not entry.closing:
                expired.append(entry)
        for entry in expired:
            self._running.cancel(entry, now)
        if expired:
            self._changes.append(Expired(tuple(expired)))
        self._expire_at = now + AGAIN_SECONDS  # `written` sets the time of the next request to expire.

    def timer(self) -> float | None:
        dues = [core.timer() for core in self._connected()]
        due = min([due for due in dues if due is not None], default=NEVER)
        return min(due, self._running.timer(), self._again_at, self._expire_at, self._age_at)

    def leave(self, now: float) -> None:
        """Send DISCONNECT. The next start runs the requests under way again."""
        for worker in self._workers.values():
            worker.leave(now)
        for core in self._connected():
            self._sends += core.take_sends()
