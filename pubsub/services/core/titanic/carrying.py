"""The connections on which Titanic runs requests. Each lives as long as its request, so that a late reply is accepted.

A broker has no message about a request that it gave up. If no reply comes in time, Titanic asks the broker on the same
connection whether it still has that connection's request (`mmi.pending`, `management`):

    | answer  | meaning                            | effect                                                     |
    | 200, 1  | it waits, or a worker has it       | wait for the reply, and ask again after ASK_SECONDS        |
    | 200, 0  | it is lost: its worker died        | `Outcome` without a reply; the connection is closed        |
    | another | the broker has no `mmi.pending`    | `Outcome` without a reply, `kept`; the connection is kept  |
    | none    | the broker or the network is gone  | after QUESTIONS_MAX questions as for a lost request        |

Messages on one connection keep their order: a reply that left the broker before that answer arrives before it. A
connection with a question on it carries no other request, since a late answer would count as one about the new request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.services.core.interface import Answered, BaseCore, Dial, Frames, HangUp, Send
from pubsub.services.core.majordomo.client import MajordomoWire
from pubsub.services.core.majordomo.management import OK
from pubsub.services.core.titanic.protocol import code

PENDING_SERVICE: Final = "mmi.pending"

PORT_LEAD: Final = "run "
"""Prefix of the names of these connections."""

ASK_SECONDS: Final = 1.0
"""Interval between two questions whether the broker has a request with a late reply."""

ANSWER_SECONDS: Final = 2.5
"""Time limit for an answer to that question."""

QUESTIONS_MAX: Final = 3
"""Questions in a row without an answer, after which the request counts as lost."""

KEPT_MAX: Final = 64
"""Connections that are kept for late replies of brokers without `mmi.pending`. One more closes the oldest."""


class Outcome(NamedTuple):
    """The result of a request.

    Attributes:
        token: token of the request.
        body: body of the reply; None: there is none, and the request may be sent again.
        kept: its connection is kept, so that a reply may still come.
    """

    token: int
    body: Frames | None
    kept: bool = False


@dataclass(slots=True)
class _Run:
    port: str
    token: int
    service: str
    ends: float
    due: float
    unanswered: int = 0
    asked: bool = False


class Carrier(BaseCore):
    """Sends requests to a broker and waits for their replies."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address, self._wire = address, MajordomoWire()
        self._runs: dict[str, _Run] = {}
        self._ports: dict[int, str] = {}
        self._kept: OrderedDict[str, _Run] = OrderedDict()
        self._free: list[str] = []
        self._dialled = 0
        self._outcomes: list[Outcome] = []

    def run(self, token: int, service: str, body: Frames, seconds: float, now: float) -> None:
        """Send a request.

        Args:
            token: name of the request in `take_outcomes`, used once.
            seconds: expected time of the reply; after it the broker is asked.
            now: monotonic seconds.
        """
        if self._free:
            port = self._free.pop()
        else:
            self._dialled += 1
            port = f"{PORT_LEAD}{self._dialled}"
            self._sends.append(Dial(port, self._address, lasting=True))
        self._ports[token] = port
        self._runs[port] = _Run(port, token, service, now + seconds, now + seconds)
        self._sends.append(Send(port, b"", self._wire.request(service, body)))

    def cancel(self, token: int) -> None:
        """Drop a request, its connection and a late reply, unless it is unknown."""
        port = self._ports.pop(token, None)
        if port is not None:
            self._close(port)

    def take_outcomes(self) -> list[Outcome]:
        """Return the results of requests, in order. A request that was `kept` may have two."""
        taken, self._outcomes = self._outcomes, []
        return taken

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        run = self._runs.get(port) or self._kept.get(port)
        if run is None:
            self.counters["unasked"] += 1
            return
        event = self._wire.reply(run.token, run.service, frames)
        if isinstance(event, Answered):
            self._outcomes.append(Outcome(run.token, event.body))
            self._ended(run)
            return
        answer = self._wire.reply(run.token, PENDING_SERVICE, frames)
        if not isinstance(answer, Answered):
            self.counters["undecodable"] += 1
        elif port in self._runs:
            self._told(run, answer.body, now)

    def _ended(self, run: _Run) -> None:
        """Free the connection of an answered request for the next request."""
        late = self._kept.pop(run.port, None) is not None
        self._ports.pop(run.token, None)
        if run.asked or late:
            self._close(run.port)
        else:
            del self._runs[run.port]
            self._free.append(run.port)

    def _told(self, run: _Run, answer: Frames, now: float) -> None:
        run.unanswered = 0
        if code(answer) != OK or len(answer) != 2 or not answer[1].isdigit():
            self._keep(run, now)
        elif answer[1].strip(b"0"):
            run.due = now + ASK_SECONDS
        else:
            self._lost(run)

    def _lost(self, run: _Run) -> None:
        self._ports.pop(run.token, None)
        self._close(run.port)
        self._outcomes.append(Outcome(run.token, None))

    def _keep(self, run: _Run, now: float) -> None:
        """Wait for the usual time, and then keep the connection: the broker cannot tell whether it has the request."""
        if now < run.ends:
            run.due = run.ends
            return
        del self._runs[run.port]
        self._kept[run.port] = run
        self._outcomes.append(Outcome(run.token, None, kept=True))
        if len(self._kept) > KEPT_MAX:
            port, oldest = self._kept.popitem(last=False)
            self._ports.pop(oldest.token, None)
            self._close(port)

    def _close(self, port: str) -> None:
        self._runs.pop(port, None)
        self._kept.pop(port, None)
        self._sends.append(HangUp(port))

    def ended(self, port: str, now: float) -> None:
        """Ask at once, on the new connection, whether the broker there has the request."""
        run = self._runs.get(port)
        if run is not None and not run.asked:
            run.due = now

    def refused(self, port: str, reason: str, now: float) -> None:
        """Count the request as lost, since the broker refuses this process."""
        super().refused(port, reason, now)
        run = self._runs.get(port)
        if reason and run is not None:
            self._lost(run)

    def timer(self) -> float | None:
        return min((run.due for run in self._runs.values()), default=None)

    def tick(self, now: float) -> None:
        """Ask about late replies."""
        for run in [run for run in self._runs.values() if run.due <= now]:
            if run.unanswered >= QUESTIONS_MAX:
                self._lost(run)
                continue
            self.counters["asked"] += 1
            run.asked, run.unanswered, run.due = True, run.unanswered + 1, now + ANSWER_SECONDS
            self._sends.append(Send(run.port, b"", self._wire.request(PENDING_SERVICE, (run.service.encode(),))))
