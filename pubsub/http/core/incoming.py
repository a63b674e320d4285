"""A request that arrives: what is done with it, from what the inbox holds of its key.

    nothing of it        stored, durably, and then handled: a message and a job are acknowledged at once
    RECEIVED             a put: handled now, or 409 while it is being handled; a message or a job: acknowledged again
    DONE                 the stored response, whatever was asked of it before
    CONFIRMED            410: the sender has said that it has the response, so it is kept no longer
    FAILED               501: its handler was tried often enough
    another payload      422, of a key that is known, whatever its state
    finished             410: the sender has said that it will not send this number again, and its tombstone is gone

Two entries of the inbox never have the same owner and key, so a handler's effect and the state DONE, committed in one
transaction, happen once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pubsub.http.core.answers import Answer
from pubsub.http.core.outgoing import Kind


class Standing(enum.StrEnum):
    """Where a request that arrived stands."""

    RECEIVED = "received"
    DONE = "done"
    CONFIRMED = "confirmed"
    FAILED = "failed"


class Decision(enum.Enum):
    """What is done with a request that arrives."""

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
    """A request, as the inbox holds it; times are seconds of the store's own time.

    Attributes:
        owner: whose token it came with; "" where there are no tokens.
        key: its Idempotency-Key.
        kind: what the resource does with it.
        method, path, query, headers, body: the HTTP request; the path is that within the receiver. The body is b""
            once it is handled.
        print: see `keys.fingerprint`.
        response_url: of a job.
        received: when; due: when its handler is tried next; changed: when its standing, or
            its next call, was settled last.
        standing: where it stands.
        attempts: of its handler, that failed.
        answer: the stored response.
        problem: what its handler raised last.
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
    """What is done with a request.

    Args:
        found: what the inbox holds under its owner and key; None: nothing.
        print_: of the request that is here now.
        running: its handler is at work.
        forgotten: its number is finished, as its sender has said.
        room: the inbox takes one more.
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
    """What a message or a job is answered with once it is stored: 204, or 202."""
    return Answer(202 if kind is Kind.JOB else 204, {})


def worn_out(attempts: int, attempts_max: int) -> bool:
    """Whether a handler that failed so often is not called again."""
    return attempts >= attempts_max
