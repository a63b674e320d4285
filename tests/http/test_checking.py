"""The allowed requests of a caller, and the meaning of an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pubsub.errors import CallerError, TooLarge
from pubsub.http.checking import check_draft, check_headers, failure, outcome
from pubsub.http.core.answers import Answer
from pubsub.http.core.keys import OUTCOME
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.errors import JobFailed, RequestExpired, RequestRefused

DONE = Outgoing(
    "id", Kind.PUT, "PUT", "http://h/", {}, b"", b"", 0.0, 1.0, 0.0, State.DONE, answer=Answer(200, {}, b"yes")
)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://h:0/",
        "http://h:99999/",
        "http://h/ x",
        "http://h/\n",
        7,
        None,
    ],
)
def test_an_invalid_url_is_refused(url: Any) -> None:
    with pytest.raises(CallerError):
        check_draft(Kind.PUT, url, b"", "", None)
    with pytest.raises(CallerError):
        check_draft(Kind.JOB, "http://h/", b"", "", None, url)


def test_bodies_are_bytes_and_keys_are_printable() -> None:
    with pytest.raises(CallerError, match="bytes"):
        check_draft(Kind.PUT, "http://h/", "text", "", None)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="key"):
        check_draft(Kind.PUT, "http://h/", b"", "ä", None)
    with pytest.raises(TooLarge, match="URL_LENGTH_MAX"):
        check_draft(Kind.PUT, "http://h/" + "x" * 9000, b"", "", None)
    assert check_draft(Kind.PUT, "http://h/", bytearray(b"x"), "k", {"X-A": "b"}).headers == {"x-a": "b"}


@pytest.mark.parametrize(
    "headers",
    [{"a b": ""}, {"a": "x\r\ny: z"}, {"Idempotency-Key": "k"}, {"Reliable-Finished": "9"}, {"Host": "x"}, {"": ""}],
)
def test_invalid_and_reserved_headers_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(CallerError):
        check_headers(headers)


def test_headers_are_bounded() -> None:
    with pytest.raises(TooLarge, match="HEADERS_MAX"):
        check_headers({f"x-{number}": "" for number in range(65)})
    with pytest.raises(TooLarge, match="HEADERS_BYTES_MAX"):
        check_headers({"x": "y" * 20_000})


def test_an_end_is_an_answer_or_its_own_error() -> None:
    assert outcome(DONE).body == b"yes"
    assert failure(replace(DONE, state=State.OPEN, answer=None)) is None
    refused = failure(replace(DONE, state=State.REFUSED, answer=Answer(404), problem="404: nothing here"))
    assert isinstance(refused, RequestRefused)
    assert refused.status == 404
    assert isinstance(failure(replace(DONE, state=State.EXPIRED, answer=None)), RequestExpired)
    failed = replace(
        DONE, kind=Kind.JOB, state=State.REFUSED, answer=Answer(500, {OUTCOME: "failed"}), problem="no paper"
    )
    with pytest.raises(JobFailed, match="no paper"):
        outcome(failed)
