"""The meaning of a response for a reliable request: settled, tried again, or final.

    2xx                          settled; 202 to a job: accepted, its result follows
    408 409 425 429              tried again: too slow, still running (draft 07), too early, too many
    5xx but for the finals       tried again: the server or a gateway before it is out of order
    501 505 508 510 511          final, as is every other status: a repeat would get the same response

A redirect is final: only the caller may decide to send a body to another place.

The rule is docs/explanation/reliable-http.md, Q2.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pubsub.http.core.limits import PROBLEM_BYTES_MAX
from pubsub.web.problems import MEDIA_TYPE, encoded

REASON_LENGTH_MAX: Final = 200
"""Characters shown of a response's reason."""

_AGAIN: Final = frozenset({408, 409, 425, 429})
_FINAL_5XX: Final = frozenset({501, 505, 508, 510, 511})


class Verdict(enum.Enum):
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response: of a receiver, or made by a handler.

    Args:
        status: the code; headers: name in lower case -> value; body: complete.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as UTF-8; other bytes are replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ValueError: it is not JSON, or nested too deeply for Python.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None


def is_again(status: int) -> bool:
    """Return whether a request with such a response is repeated."""
    return status in _AGAIN or (status >= 500 and status not in _FINAL_5XX)


def judge(answer: Answer, *, job: bool) -> Verdict:
    """Return the meaning of a response.

    Args:
        answer: the response; job: it answers a job, which may get its result later.
    """
    if is_again(answer.status):
        return Verdict.AGAIN
    if job and answer.status == 202:
        return Verdict.ACCEPTED
    if job and answer.status == 204:
        return Verdict.REFUSED  # A receiver that takes a job for a message never sends the result.
    return Verdict.ANSWERED if 200 <= answer.status < 300 else Verdict.REFUSED


def problem(status: int, title: str, detail: str = "", retry_after_seconds: int | None = None) -> Answer:
    """Return an error response as problem+json (RFC 9457).

    Args:
        status: the code; title: common to all such errors; detail: of this one.
        retry_after_seconds: value of `Retry-After`.
    """
    headers = {"content-type": MEDIA_TYPE}
    if retry_after_seconds is not None:
        headers["retry-after"] = str(retry_after_seconds)
    return Answer(status, headers, encoded(status, title, detail))


def reason(answer: Answer) -> str:
    """Return the reason of an error response in one line: text of its problem+json, or the beginning of its text."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind in {MEDIA_TYPE, "application/json"} and len(answer.body) <= PROBLEM_BYTES_MAX:
        try:
            facts = answer.json()
        except ValueError:
            facts = None
        if isinstance(facts, dict):
            said = [facts[name] for name in ("title", "detail") if isinstance(facts.get(name), str)]
            return " ".join(": ".join(said).split())[:REASON_LENGTH_MAX]
    if answer.status in range(300, 400) and "location" in answer.headers:
        return f"redirected to {answer.headers['location']}"[:REASON_LENGTH_MAX]
    return " ".join(answer.text.split())[:REASON_LENGTH_MAX] if kind == "text/plain" else ""
