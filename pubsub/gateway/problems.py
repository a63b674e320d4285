"""Errors as answers: problem details (RFC 9457), one sentence each.

What went wrong inside is an error of `pubsub.errors`, or a `Problem` that the gateway raises itself; both become the
same JSON. `type` is a URN that a program can compare, and never changes; `detail` is for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from pubsub import errors
from pubsub.errors import (
    CallerError,
    DataLoss,
    InDoubt,
    InvalidName,
    NotAllowed,
    NotKnown,
    NotLetIn,
    NotNow,
    NotSubscribed,
    PubsubError,
    StateCopied,
    StorageError,
    StoreFull,
    Superseded,
    TooLarge,
    Unavailable,
)
from pubsub.web.problems import MEDIA_TYPE, Refused, encoded

PREFIX: Final = "urn:pubsub:problem:"

TITLES: Final[Mapping[str, tuple[int, str]]] = {
    "bad-request": (400, "The request cannot be understood"),
    "invalid-name": (400, "A name is not allowed"),
    "not-authenticated": (401, "A bearer token is needed"),
    "not-allowed": (403, "This token has no right to that"),
    "foreign-site": (403, "The request comes from another site, or is for another host"),
    "not-found": (404, "There is no such resource"),
    "not-subscribed": (404, "There is no such subscriber"),
    "method-not-allowed": (405, "The resource does not have this method"),
    "too-slow": (408, "The request did not arrive in time"),
    "conflict": (409, "Something stands against it"),
    "busy-subscriber": (409, "Another reader has this subscriber"),
    "superseded": (409, "The subscriber was opened elsewhere"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body is of a kind that is not taken"),
    "key-reused": (422, "The Idempotency-Key belongs to another request"),
    "refused": (422, "The service refuses it"),
    "headers-too-large": (431, "The headers are too large"),
    "internal": (500, "An error inside the gateway"),
    "data-loss": (500, "Messages are lost"),
    "not-implemented": (501, "The request needs something that the gateway does not have"),
    "cluster-refuses": (502, "The cluster does not let the gateway in"),
    "unavailable": (503, "The service does not answer"),
    "in-doubt": (503, "The message may or may not be put yet"),
    "busy": (503, "The gateway is full"),
    "stopping": (503, "The gateway is stopping"),
    "http-version": (505, "The version of HTTP is none that the gateway speaks"),
    "storage": (507, "The gateway's disk refuses"),
}
"""Name of a problem -> status and title."""

_OF_ERRORS: Final[tuple[tuple[type[PubsubError], str], ...]] = (
    (InvalidName, "invalid-name"),
    (TooLarge, "too-large"),
    (NotSubscribed, "not-subscribed"),
    (NotAllowed, "not-allowed"),
    (NotLetIn, "cluster-refuses"),
    (InDoubt, "in-doubt"),
    (Unavailable, "unavailable"),
    (DataLoss, "data-loss"),
    (Superseded, "superseded"),
    (errors.Refused, "refused"),
    (NotKnown, "not-found"),
    (NotNow, "conflict"),
    (StateCopied, "storage"),
    (StoreFull, "storage"),
    (StorageError, "storage"),
    (CallerError, "bad-request"),
)


OF_STATUS: Final = {
    400: "bad-request",
    408: "too-slow",
    413: "too-large",
    415: "unsupported-media-type",
    431: "headers-too-large",
    501: "not-implemented",
    503: "busy",
    505: "http-version",
}
"""Status of a request that was refused before it came to its handler -> name of the problem."""


class Problem(Refused):
    """An answer that says why not.

    Args:
        name: one of TITLES.
        detail: one sentence, for a person.
        headers: more of the answer.
    """

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.name = name
        super().__init__(TITLES[name][0], detail, headers)


def response(refused: Refused) -> Response:
    """The answer to a request that is refused."""
    name = refused.name if isinstance(refused, Problem) else OF_STATUS[refused.status]
    return Response(body(name, refused.detail), refused.status, refused.headers, MEDIA_TYPE)


def body(name: str, detail: str) -> bytes:
    """The JSON of a problem."""
    status, title = TITLES[name]
    return encoded(status, title, detail, PREFIX + name)


def problem_of(error: PubsubError) -> Problem:
    """The answer to an error of the client's."""
    if isinstance(error, TooLarge) and error.name == "outbox_bytes_max":
        return Problem("busy", "As many puts wait for the service as the gateway may keep; try again.")
    for kind, name in _OF_ERRORS:
        if isinstance(error, kind):
            return Problem(name, _sentence(error))
    return Problem("internal", _sentence(error))


def _sentence(error: PubsubError) -> str:
    """What an error says, without the shell commands that are of no use to who speaks HTTP."""
    if isinstance(error, InDoubt):
        reason = f" ({error.reason})" if error.reason else ""
        return (
            f"The put on {error.topic} was not acknowledged within {error.seconds:g} s{reason}; it is kept and goes out"
            " once, so repeat it only with the same Idempotency-Key."
        )
    if isinstance(error, NotAllowed):
        return f"{error.reason}; the cluster's keys say so, and what was put is kept until they allow it."
    if isinstance(error, NotSubscribed):
        return f"{error.client} is not subscribed to {error.topic}; PUT the subscriber first."
    if isinstance(error, StorageError):
        return f"The gateway's disk refuses: {error.reason}."
    text = str(error)
    return text if text.endswith(".") else text + "."
