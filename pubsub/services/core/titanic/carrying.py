"""The connections by which Titanic runs requests. Each lives as long as its request, so a late reply is taken.

A broker has no message for a request that it gave up. So where no reply comes in time, the broker is asked by the same
connection, to which it belongs, whether it still has that connection's request (`mmi.pending`, `management`):

    | answer  | means                            | then                                                           |
    | 200, 1  | it waits, or a worker has it     | the reply is waited for, and the broker asked in ASK_SECONDS   |
    | 200, 0  | it is lost: its worker died      | `Outcome` without a reply; the connection is closed            |
    | another | the broker knows no such service | `Outcome` without a reply, `kept`; the connection is kept      |
    | none    | the broker or the way is gone    | after QUESTIONS_MAX as where the request is lost               |

Messages on one connection keep their order: a reply that left the broker before that answer comes before it. A
connection by which something was asked carries no other request, since an answer that comes late would be taken for one
about it.
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
"""What the names of these connections begin with."""

ASK_SECONDS: Final = 1.0
"""Between two questions whether the broker has a request whose reply is late."""

ANSWER_SECONDS: Final = 2.5
"""For an answer to that question."""

QUESTIONS_MAX: Final = 3
"""In a row that find no answer; then the request counts as lost."""

KEPT_MAX: Final = 64
"""Connections that are kept for late replies of brokers that cannot tell; the oldest is closed for a further one."""


class Outcome(NamedTuple):
    """What came of a request.

    Attributes:
        token: of the request.
        body: of its reply; None: there is none, and the request may be sent again.
        kept: its connection is kept, so a reply may still come.
    """

    token: int
    body: Frames | None
    kept: bool = False


@dataclass(slots=True)
class _Run:
    """A connection and the request that it carries."""

    port: str
    token: int
    service: str
    ends: float
    due: float
    unanswered: int = 0
    asked: bool = False


class Carrier(BaseCore):
    """Sends requests to a broker and waits for their replies.

    Args:
        address: of the broker.
    """

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
            token: by which `take_outcomes` names it; each once.
            service, body: of the request.
            seconds: within which a reply is expected; then the broker is asked.
            now: seconds on the monotonic clock.
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
        """Nobody waits for the reply any more, a late one included; nothing where it is not known."""
        port = self._ports.pop(token, None)
        if port is not None:
            self._close(port)

    def take_outcomes(self) -> list[Outcome]:
        """What came of requests, in order; a request that was `kept` may come twice."""
        taken, self._outcomes = self._outcomes, []
        return taken

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """The broker says something by a connection."""
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
        """A reply came: the connection may carry the next request."""
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
        """The broker cannot tell: a reply is waited for as long as is usual, and taken whenever it comes."""
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
        """A connection broke: it is asked at once whether whoever is there now has the request."""
        run = self._runs.get(port)
        if run is not None and not run.asked:
            run.due = now

    def refused(self, port: str, reason: str, now: float) -> None:
        """The broker does not let us in: nothing of it is run there."""
        super().refused(port, reason, now)
        run = self._runs.get(port)
        if reason and run is not None:
            self._lost(run)

    def timer(self) -> float | None:
        """When something is to be asked, or has not been answered."""
        return min((run.due for run in self._runs.values()), default=None)

    def tick(self, now: float) -> None:
        """Ask about what is late."""
        for run in [run for run in self._runs.values() if run.due <= now]:
            if run.unanswered >= QUESTIONS_MAX:
                self._lost(run)
                continue
            self.counters["asked"] += 1
            run.asked, run.unanswered, run.due = True, run.unanswered + 1, now + ANSWER_SECONDS
            self._sends.append(Send(run.port, b"", self._wire.request(PENDING_SERVICE, (run.service.encode(),))))
