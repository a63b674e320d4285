"""Errors as responses: problem details (RFC 9457) with one sentence each.

An error inside is one of `pubsub.errors`, or a `Problem` of the gateway itself; both become the same JSON. `type` is a
URN for programs and never changes; `detail` is for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from pubsub import errors
from pubsub.client.errors import HistoryChanged, StartGone
from pubsub.errors import (
    CallerError,
    DataLoss,
    InDoubt,
    InvalidName,
    KeyRefused,
    NotAllowed,
    NotKnown,
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
    "bad-request": (400, "The request is not valid"),
    "invalid-name": (400, "A name is not allowed"),
    "not-authenticated": (401, "A valid bearer token is missing"),
    "not-allowed": (403, "The token lacks the right"),
    "foreign-site": (403, "The request comes from another site, or is for another host"),
    "not-found": (404, "The resource does not exist"),
    "not-subscribed": (404, "The subscriber does not exist"),
    "method-not-allowed": (405, "The resource does not have this method"),
    "too-slow": (408, "The request did not arrive in time"),
    "conflict": (409, "The state of the resource forbids the request"),
    "busy-subscriber": (409, "Another request reads from this subscriber"),
    "superseded": (409, "The subscriber was opened elsewhere"),
    "history-changed": (409, "Two servers merged the topic during the read"),
    "start-gone": (410, "The message at the start is gone"),
    "precondition-failed": (412, "The resource has changed"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The content type or coding is not supported"),
    "key-reused": (422, "The Idempotency-Key belongs to another request"),
    "refused": (422, "The service rejects the request"),
    "headers-too-large": (431, "The headers are too large"),
    "internal": (500, "An error inside the gateway"),
    "data-loss": (500, "Messages are lost"),
    "not-implemented": (501, "The gateway does not support the request"),
    "cluster-refuses": (502, "The cluster rejects the gateway's key"),
    "unavailable": (503, "The service does not answer"),
    "in-doubt": (503, "The put has no answer yet"),
    "busy": (503, "The gateway has reached a limit"),
    "stopping": (503, "The gateway is stopping"),
    "http-version": (505, "The HTTP version is not supported"),
    "storage": (507, "The gateway's disk failed"),
}
"""Name of a problem -> status and title."""

_OF_ERRORS: Final[tuple[tuple[type[PubsubError], str], ...]] = (
    (InvalidName, "invalid-name"),
    (TooLarge, "too-large"),
    (NotSubscribed, "not-subscribed"),
    (NotAllowed, "not-allowed"),
    (KeyRefused, "cluster-refuses"),
    (InDoubt, "in-doubt"),
    (Unavailable, "unavailable"),
    (DataLoss, "data-loss"),
    (Superseded, "superseded"),
    (errors.Refused, "refused"),
    (NotKnown, "not-found"),
    (StartGone, "start-gone"),
    (HistoryChanged, "history-changed"),
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
"""Problem of a request that was rejected before its handler, by status."""


class Problem(Refused):
    """An error response.

    Args:
        name: one of TITLES.
        detail: one sentence, for a person.
        headers: further headers of the response.
    """

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.name = name
        super().__init__(TITLES[name][0], detail, headers)


def response(refused: Refused) -> Response:
    name = refused.name if isinstance(refused, Problem) else OF_STATUS[refused.status]
    return Response(body(name, refused.detail), refused.status, refused.headers, MEDIA_TYPE)


def body(name: str, detail: str) -> bytes:
    status, title = TITLES[name]
    return encoded(status, title, detail, PREFIX + name)


def problem_of(error: PubsubError) -> Problem:
    if isinstance(error, TooLarge) and error.name == "outbox_bytes_max":
        return Problem("busy", "The gateway's outbox is full, because the service is slow; try again.")
    for kind, name in _OF_ERRORS:
        if isinstance(error, kind):
            return Problem(name, _sentence(error))
    return Problem("internal", _sentence(error))


def _sentence(error: PubsubError) -> str:
    """Return the text of an error, without shell commands, which do not help a user of HTTP."""
    if isinstance(error, InDoubt):
        reason = f" ({error.reason})" if error.reason else ""
        return (
            f"The put to {error.topic} was not acknowledged within {error.seconds:g} s{reason}; the gateway keeps it"
            " and sends it once, so repeat it only with the same Idempotency-Key."
        )
    if isinstance(error, NotAllowed):
        kept = "; the put is kept until the list allows it" if error.operation == "put" else ""
        return f"{error.reason} (by the cluster's access list){kept}."
    if isinstance(error, NotSubscribed):
        return f"{error.client} is not subscribed to {error.topic}; PUT the subscriber first."
    if isinstance(error, StorageError):
        return f"The gateway's disk failed: {error.reason}."
    text = str(error)
    return text if text.endswith(".") else text + "."
