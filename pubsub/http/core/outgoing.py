"""The states of a request in the outbox: one table from state and event to the next state; a missing entry is a bug.

    OPEN        in the outbox; sent, and sent again, until a response settles it
    ACCEPTED    a job that the receiver has stored; its result arrives in a request of its own
    DONE        settled, with its response: a tombstone, never sent again
    REFUSED     a final response, or a job that failed: a tombstone
    EXPIRED     nothing settled it within `expiry_seconds`: a tombstone; it may or may not have happened

A late response or result for a settled request changes nothing. The result of a job may arrive before the response that
accepts the job, because they take different ways.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pubsub.http.core.answers import Answer, Verdict
from pubsub.web.backoff import Backoff


class Kind(enum.StrEnum):
    """The three calls, and the result that a receiver sends for a job."""

    PUT = "put"
    SEND = "send"
    JOB = "job"
    RESULT = "result"


class State(enum.StrEnum):
    """State of a request in the outbox."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"


class Event(enum.Enum):
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    AGAIN = "again"
    REFUSED = "refused"
    RESULT = "result"
    FAILED = "failed"
    EXPIRED = "expired"


OVER: Final = frozenset({State.DONE, State.REFUSED, State.EXPIRED})

_OPEN: Final = {
    Event.ANSWERED: State.DONE,
    Event.ACCEPTED: State.ACCEPTED,
    Event.AGAIN: State.OPEN,
    Event.REFUSED: State.REFUSED,
    Event.RESULT: State.DONE,
    Event.FAILED: State.REFUSED,
    Event.EXPIRED: State.EXPIRED,
}
_ACCEPTED: Final = dict.fromkeys(Event, State.ACCEPTED) | {
    Event.RESULT: State.DONE,
    Event.FAILED: State.REFUSED,
    Event.EXPIRED: State.EXPIRED,
}
TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.OPEN: _OPEN,
    State.ACCEPTED: _ACCEPTED,
    State.DONE: dict.fromkeys(Event, State.DONE),
    State.REFUSED: dict.fromkeys(Event, State.REFUSED),
    State.EXPIRED: dict.fromkeys(Event, State.EXPIRED),
}
EVENTS: Final[Mapping[Verdict, Event]] = {
    Verdict.ANSWERED: Event.ANSWERED,
    Verdict.ACCEPTED: Event.ACCEPTED,
    Verdict.AGAIN: Event.AGAIN,
    Verdict.REFUSED: Event.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request in the outbox; times are in the store's own time.

    Attributes:
        id: the message ID, or the caller's key.
        method, url, headers, body: the HTTP request; the body is b"" once the request is not sent again.
        print: see `keys.fingerprint`.
        created, expires, due: time of storing, of giving up, and of the next try.
        attempts: failed tries in a row.
        answer: the response that settled it; None if unsettled.
        problem: the last error.
        confirm: URL whose DELETE is still to be sent; "" for none.
        listen: of a job, the local URL with a server of the sender; "" for none.
        changed: time of the last change of its state or its next try.
    """

    id: str
    kind: Kind
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    print: bytes
    created: float
    expires: float
    due: float
    state: State = State.OPEN
    attempts: int = 0
    answer: Answer | None = None
    problem: str = ""
    confirm: str = ""
    listen: str = ""
    changed: float = field(default=0.0)

    @property
    def over(self) -> bool:
        return self.state in OVER


def settle(
    request: Outgoing,
    event: Event,
    now: float,
    *,
    answer: Answer | None = None,
    problem: str = "",
    confirm: str = "",
) -> Outgoing:
    """Return the request after an event other than `AGAIN`.

    Args:
        request: before; event: the event; now: its time.
        answer: its response; problem: error text; confirm: URL to DELETE.
    """
    state = TRANSITIONS[request.state][event]
    if state is request.state:
        return request
    over = state in OVER
    return replace(
        request,
        state=state,
        answer=answer if over else None,
        problem=problem,
        confirm=confirm if state is State.DONE else "",
        due=now if state is State.DONE and confirm else request.expires,
        attempts=0,
        body=b"",
        changed=now,
    )


def put_off(
    request: Outgoing, now: float, backoff: Backoff, chance: float, asked: float = 0.0, problem: str = ""
) -> Outgoing:
    """Return the request after a try that settled nothing.

    Args:
        request: before; now: the time; backoff: pauses; chance: 0 to 1; asked: seconds that the response asked for.
        problem: error text.
    """
    state = TRANSITIONS[request.state][Event.AGAIN]
    if request.state is not State.OPEN or state is not State.OPEN:
        return request
    attempts = request.attempts + 1
    due = now + backoff.seconds(attempts, chance, asked)
    return replace(request, attempts=attempts, due=min(due, request.expires), problem=problem, changed=now)
