"""What a caller may ask for: URLs, headers, bodies, keys; and what an end means to whoever asked."""

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
    """A request that can be sent, if it is one.

    Raises:
        CallerError, TooLarge: it is none; nothing was stored.
    """
    _split(url, "URL")
    if kind is Kind.JOB:
        _split(local_url, "local URL")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise CallerError(f"a body is bytes, not {type(body).__name__}")
    if key:
        try:
            check_key(key)
        except BadKey:
            raise CallerError(f"a key is 1 to {KEY_LENGTH_MAX} printable ASCII characters") from None
    return Draft(kind, url, check_headers(headers or {}), bytes(body), key, local_url, listens)


def _split(url: Any, what: str) -> SplitResult:
    if not isinstance(url, str):
        raise CallerError(f"a {what} is a str, not {type(url).__name__}")
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
    """Header fields by names in lower case.

    Raises:
        CallerError: one of them cannot be, or is ours to set; TooLarge: they are too many.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not _TOKEN.fullmatch(name):
            raise CallerError(f"header {name!r} is not a name with a text")
        if not _VALUE.fullmatch(value):
            raise CallerError(f"header {name}: its value is not printable ASCII")
        lower = name.lower()
        if lower in _OURS or lower.startswith("reliable-"):
            raise CallerError(f"header {name} is not the caller's to set")
        found[lower] = value
    if len(found) > HEADERS_MAX:
        raise TooLarge("number of headers", len(found), HEADERS_MAX, "HEADERS_MAX")
    if (size := sum(len(name) + len(value) for name, value in found.items())) > HEADERS_BYTES_MAX:
        raise TooLarge("size of the headers", size, HEADERS_BYTES_MAX, "HEADERS_BYTES_MAX")
    return found


def outcome(request: Outgoing) -> Answer:
    """What settled a request, if that is a success.

    Raises:
        RequestRefused, RequestExpired, JobFailed: it is none.
    """
    error = failure(request)
    if error is not None:
        raise error
    assert request.answer is not None
    return request.answer


def failure(request: Outgoing) -> PubsubError | None:
    """The error that an end without success is; None for a success, and for a request that is not settled."""
    status = request.answer.status if request.answer is not None else 0
    if request.state is State.EXPIRED:
        return RequestExpired(request.id, request.url, request.problem or "nothing")
    if request.state is State.REFUSED:
        if request.answer is not None and request.answer.headers.get(OUTCOME) == "failed":
            return JobFailed(request.id, request.url, request.problem, status)
        return RequestRefused(request.id, request.url, request.problem, status)
    return None
