"""Checks of a caller's URLs, headers, bodies and keys, and the error for each end of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from pubsub.base.urls import masked
from pubsub.errors import CallerError, PubsubError, TooLarge
from pubsub.http.core.answers import Answer
from pubsub.http.core.keys import IDEMPOTENCY_KEY, OUTCOME
from pubsub.http.core.limits import HEADERS_BYTES_MAX, HEADERS_MAX, URL_LENGTH_MAX
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.errors import JobFailed, RequestExpired, RequestRefused
from pubsub.http.sending import Draft
from pubsub.web.idempotency import KEY_LENGTH_MAX, BadKey, check_key

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t -~]*")
_OURS: Final = frozenset({IDEMPOTENCY_KEY, "connection", "content-length", "host", "transfer-encoding"})


def check_draft(
    kind: Kind,
    url: str,
    body: bytes,
    key: str,
    headers: Mapping[str, str] | None,
    local_url: str = "",
    *,
    listens: bool = True,
) -> Draft:
    """Return a request that can be sent.

    Raises:
        CallerError, TooLarge: the arguments are not valid; nothing was stored.
    """
    _split(url, "URL")
    if kind is Kind.JOB:
        _split(local_url, "local URL")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise CallerError(f"a body must be bytes, not {type(body).__name__}")
    if key:
        try:
            check_key(key)
        except BadKey:
            raise CallerError(f"a key must have 1 to {KEY_LENGTH_MAX} printable ASCII characters") from None
    return Draft(kind, url, check_headers(headers or {}), bytes(body), key, local_url, listens)


def _split(url: Any, what: str) -> SplitResult:
    if not isinstance(url, str):
        raise CallerError(f"a {what} must be a str, not {type(url).__name__}")
    if len(url) > URL_LENGTH_MAX:
        raise TooLarge(f"length of the {what}", len(url), URL_LENGTH_MAX, "URL_LENGTH_MAX")
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        raise CallerError(f"{what} {masked(url)!r} is malformed") from None
    if found.scheme not in {"http", "https"} or not found.hostname or port == 0 or not url.isprintable() or " " in url:
        raise CallerError(f"{what} {masked(url)!r} is not http://HOST… or https://HOST…")
    return found


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return header fields with names in lower case.

    Raises:
        CallerError: a field is malformed, or reserved for this library; TooLarge: there are too many.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not _TOKEN.fullmatch(name):
            raise CallerError(f"header {name!r} is not a valid name with a str as its value")
        if not _VALUE.fullmatch(value):
            raise CallerError(f"header {name}: its value is not printable ASCII")
        lower = name.lower()
        if lower in _OURS or lower.startswith("reliable-"):
            raise CallerError(f"header {name} is set by this library; leave it out")
        found[lower] = value
    if len(found) > HEADERS_MAX:
        raise TooLarge("number of headers", len(found), HEADERS_MAX, "HEADERS_MAX")
    if (size := sum(len(name) + len(value) for name, value in found.items())) > HEADERS_BYTES_MAX:
        raise TooLarge("size of the headers", size, HEADERS_BYTES_MAX, "HEADERS_BYTES_MAX")
    return found


def outcome(request: Outgoing) -> Answer:
    """Return the response of a successful request.

    Raises:
        RequestRefused, RequestExpired, JobFailed: the request failed.
    """
    error = failure(request)
    if error is not None:
        raise error
    assert request.answer is not None
    return request.answer


def failure(request: Outgoing) -> PubsubError | None:
    """Return the error of a failed request, None for a success and for an unsettled request."""
    status = request.answer.status if request.answer is not None else 0
    if request.state is State.EXPIRED:
        return RequestExpired(request.id, request.url, request.problem or "nothing")
    if request.state is State.REFUSED:
        if request.answer is not None and request.answer.headers.get(OUTCOME) == "failed":
            return JobFailed(request.id, request.url, request.problem, status)
        return RequestRefused(request.id, request.url, request.problem, status)
    return None
