"""The decision on an arriving request, from the inbox entry of its key.

    no entry             stored, durably, and then handled: a message and a job are acknowledged at once
    RECEIVED             a put: handled now, or 409 while it is being handled; a message or a job: acknowledged again
    DONE                 the stored response
    CONFIRMED            410: the sender has confirmed the response, so it is no longer stored
    FAILED               501: the handler has used all its attempts
    another payload      422, for a known key in any state
    finished             410: the sender has reported this number as finished, and its tombstone is removed

The inbox never has two entries with the same owner and key. A handler's effect and the state DONE are committed in one
transaction, so they happen once.

The rule is docs/explanation/reliable-http.md, Q3.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pubsub.http.core.answers import Answer
from pubsub.http.core.outgoing import Kind


class Standing(enum.StrEnum):
    RECEIVED = "received"
    DONE = "done"
    CONFIRMED = "confirmed"
    FAILED = "failed"


class Decision(enum.Enum):
    STORE = "store"
    HANDLE = "handle"
    ACKNOWLEDGE = "acknowledge"
    RUNNING = "running"
    REPEAT = "repeat"
    MISMATCH = "mismatch"
    CONFIRMED = "confirmed"
    FORGOTTEN = "forgotten"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request in the inbox; times are in the store's own time.

    Attributes:
        owner: name of its token; "" without tokens.
        key: its Idempotency-Key.
        method, path, query, headers, body: the HTTP request; the path is relative to the receiver. The body is b"" once
            the request is handled.
        print: see `keys.fingerprint`.
        response_url: of a job.
        received: time of arrival; due: time of the next call of its handler; changed: time of the last change of its
            standing or of that call.
        attempts: failed calls of its handler.
        answer: the stored response.
        problem: last error of its handler.
    """

    owner: str
    key: str
    kind: Kind
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    print: bytes
    received: float
    response_url: str = ""
    standing: Standing = Standing.RECEIVED
    attempts: int = 0
    due: float = 0.0
    changed: float = 0.0
    answer: Answer | None = None
    problem: str = ""


_ONCE_MORE: Final[Mapping[Standing, Decision]] = {
    Standing.DONE: Decision.REPEAT,
    Standing.CONFIRMED: Decision.CONFIRMED,
    Standing.FAILED: Decision.REPEAT,
}


def decide(
    found: Incoming | None, print_: bytes, *, running: bool = False, forgotten: bool = False, room: bool = True
) -> Decision:
    """Return the treatment of a request.

    Args:
        found: the inbox entry of its owner and key, None if there is none.
        print_: fingerprint of the request.
        running: its handler is running.
        forgotten: its sender has reported its number as finished.
        room: the inbox has room for one more.
    """
    if found is None:
        if forgotten:
            return Decision.FORGOTTEN
        return Decision.STORE if room else Decision.FULL
    if found.print != print_:
        return Decision.MISMATCH
    if found.standing is not Standing.RECEIVED:
        return _ONCE_MORE[found.standing]
    if found.kind is not Kind.PUT:
        return Decision.ACKNOWLEDGE
    return Decision.RUNNING if running else Decision.HANDLE


def acknowledgement(kind: Kind) -> Answer:
    """Return the response to a stored message or job: 204 or 202."""
    return Answer(202 if kind is Kind.JOB else 204, {})


def worn_out(attempts: int, attempts_max: int) -> bool:
    """Return whether a handler has failed too often to be called again."""
    return attempts >= attempts_max
