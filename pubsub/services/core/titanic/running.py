"""The order in which stored requests run: at most as many of a service as it has workers.

While a request waits, Titanic asks the broker once a second how many workers its service has (`mmi.workers`, or
`mmi.service` of a broker without it). A request is sent only if a worker is free. So no request waits in the broker
until its time is over and then runs twice.

A request is sent again once the broker answers that it no longer has it (`carrying`). If a broker cannot tell, the
request counts as lost after `reply_seconds`. The time doubles with each further try, up to 2 ** DOUBLINGS_MAX times. A
reply to any of the tries counts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final

from pubsub.services.core.interface import NEVER, Answered, Event, Frames, Patience
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.titanic.carrying import Carrier, Outcome
from pubsub.services.core.titanic.protocol import OK, UNKNOWN, code
from pubsub.services.core.titanic.requests import Entry, Load, State

ASK_SECONDS: Final = 1.0
"""Interval between two questions for the number of workers of a service."""

ASK_PATIENCE: Final = Patience(2.5, 1)

BACKOFF_SECONDS: Final = 1.0
"""Time before a request without a reply runs again. It doubles up to BACKOFF_SECONDS_MAX."""

BACKOFF_SECONDS_MAX: Final = 32.0

DOUBLINGS_MAX: Final = 5

_NOT_IMPLEMENTED: Final = b"501"


@dataclass(slots=True)
class _Service:
    name: bytes
    queue: OrderedDict[bytes, Entry] = field(default_factory=OrderedDict)
    running: int = 0
    workers: int = 0
    polled: bool = False


class Running:
    """Runs requests with a carrier. Pass the carrier's outcomes to `ended`.

    Args:
        caller: calls the broker's own services. Pass its events to `take`.
        reply_seconds: time after which the broker is asked about a request.
        parallel: limit of requests that run at a time.
    """

    def __init__(
        self, caller: LockstepCaller, carrier: Carrier, reply_seconds: float, parallel: int, counters: Counter[str]
    ) -> None:
        self._caller, self._carrier, self._counters = caller, carrier, counters
        self._reply_seconds, self._parallel = reply_seconds, parallel
        self._services: dict[bytes, _Service] = {}
        self._able: OrderedDict[bytes, _Service] = OrderedDict()
        """Services with a request and a free worker; the least recently served one first."""
        self._asks: deque[tuple[float, _Service]] = deque()
        self._later: list[tuple[float, int, Entry]] = []
        self._tokens = count(1)
        self._runs: dict[int, Entry] = {}
        self._late: dict[int, Entry] = {}
        self._asked: dict[int, _Service] = {}
        self._knows_numbers = True

    @property
    def running(self) -> int:
        """Number of requests under way."""
        return len(self._runs)

    def add(self, entry: Entry, now: float) -> None:
        """Run a request when a worker is free, unless it has a reply."""
        if entry.answered:
            return
        if entry.due > now:
            heappush(self._later, (entry.due, next(self._tokens), entry))
            return
        service = self._services.get(entry.service)
        if service is None:
            service = self._services[entry.service] = _Service(entry.service)
        service.queue[entry.id] = entry
        if not service.polled:
            service.polled = True
            self._ask(service, now)
        self._note(service)

    def cancel(self, entry: Entry, now: float) -> None:
        self._forget_late(entry)
        if entry.token:
            self._carrier.cancel(entry.token)
            self._end(entry)
        elif (service := self._services.get(entry.service)) is not None:
            service.queue.pop(entry.id, None)
            self._note(service)

    def take(self, event: Event, now: float) -> None:
        """Take the broker's answer about a service."""
        service = self._asked.pop(getattr(event, "token", 0), None)
        if service is not None:
            self._told(service, event, now)

    def ended(self, outcome: Outcome, now: float) -> tuple[Entry, Frames] | None:
        """Take the result of a run. Return the request and its reply, if there is one."""
        entry = self._runs.get(outcome.token) or self._late.get(outcome.token)
        if entry is None:
            return None
        if outcome.body is not None:
            if entry.token != outcome.token:
                self._counters["replies_late"] += 1
            self.cancel(entry, now)
            entry.answered = True
            return entry, outcome.body
        self._end(entry)
        if outcome.kept:
            entry.late.append(outcome.token)
            self._late[outcome.token] = entry
        self._counters["runs_without_reply"] += 1
        entry.tries += 1
        entry.due = now + min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(entry.tries - 1, 10))
        self.add(entry, now)
        return None

    def _forget_late(self, entry: Entry) -> None:
        for token in entry.late:
            self._late.pop(token, None)
            self._carrier.cancel(token)
        entry.late.clear()

    def _end(self, entry: Entry) -> None:
        del self._runs[entry.token]
        entry.token = 0
        service = self._services[entry.service]
        service.running -= 1
        self._note(service)

    def _note(self, service: _Service) -> None:
        """Update whether a service has a request and a free worker."""
        if service.queue and service.running < service.workers:
            self._able.setdefault(service.name, service)
        else:
            self._able.pop(service.name, None)
        if not service.queue and not service.running and not service.polled:
            self._services.pop(service.name, None)

    def start(self, now: float) -> list[Load]:
        """Start requests. Return the bodies to read; pass them to `loaded`."""
        loads = []
        while self._able and len(self._runs) < self._parallel:
            _, service = self._able.popitem(last=False)
            _, entry = service.queue.popitem(last=False)
            entry.token = next(self._tokens)
            self._runs[entry.token] = entry
            service.running += 1
            loads.append(Load(entry, entry.token))
            self._note(service)
        return loads

    def loaded(self, token: int, body: Frames, now: float) -> None:
        """Send a request, now that its body is read."""
        entry = self._runs.get(token)
        if entry is not None:
            self._counters["runs"] += 1
            seconds = self._reply_seconds * 2.0 ** min(len(entry.late), DOUBLINGS_MAX)
            self._carrier.run(token, entry.service.decode(), body, seconds, now)

    def lost(self, token: int) -> None:
        """End a request with an unreadable body."""
        entry = self._runs.get(token)
        if entry is not None:
            self._end(entry)

    def _ask(self, service: _Service, now: float) -> None:
        token = next(self._tokens)
        self._asked[token] = service
        name = "mmi.workers" if self._knows_numbers else "mmi.service"
        self._caller.call(token, name, (service.name,), ASK_PATIENCE, now)

    def _told(self, service: _Service, event: Event, now: float) -> None:
        body = event.body if isinstance(event, Answered) else (UNKNOWN,)
        if code(body) == _NOT_IMPLEMENTED and self._knows_numbers:
            self._knows_numbers = False
            self._ask(service, now)
            return
        number = body[1] if len(body) > 1 else b"1"
        known = number.isdigit() and len(number) < 10
        service.workers = (int(number) if known else 1) if code(body) == OK else 0
        self._asks.append((now + ASK_SECONDS, service))
        self._note(service)

    def timer(self) -> float:
        due = self._asks[0][0] if self._asks else NEVER
        return min(due, self._later[0][0]) if self._later else due

    def tick(self, now: float) -> None:
        """Ask again for the number of workers, and add the requests that have waited long enough."""
        while self._asks and self._asks[0][0] <= now:
            _, service = self._asks.popleft()
            if service.queue:
                self._ask(service, now)
            else:
                service.polled, service.workers = False, 0
                self._note(service)
        while self._later and self._later[0][0] <= now:
            _, _, entry = heappop(self._later)
            if entry.state is State.PENDING and not entry.closing:
                self.add(entry, now)
