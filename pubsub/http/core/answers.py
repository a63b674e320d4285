"""What an answer means for a request that must be done once: it is settled, it is tried again, or it never will be.

    2xx                          settled; 202 to a job: accepted, its result follows
    408 409 425 429              tried again: too slow, still running (draft 07), too early, too many
    5xx but for the finals       tried again: the server or a gateway before it is out of order
    501 505 508 510 511          final, as is every other status: a repeat would be answered so again

A redirect is final: to send a body elsewhere than where the caller said is not ours to decide.
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
"""Characters of what an answer says that are shown."""

_AGAIN: Final = frozenset({408, 409, 425, 429})
_FINAL_5XX: Final = frozenset({501, 505, 508, 510, 511})


class Verdict(enum.Enum):
    """What an answer means."""

    ANSWERED = "answered"
    ACCEPTED = "accepted"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response: what a receiver answered, or what a handler has it answer.

    Args:
        status: the code; headers: name in lower case -> value; body: all of it.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as UTF-8; what is none is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: it is none, or nested too deeply for Python.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def is_again(status: int) -> bool:
    """Whether a request that was answered so is sent once more."""
    return status in _AGAIN or (status >= 500 and status not in _FINAL_5XX)


def judge(answer: Answer, *, job: bool) -> Verdict:
    """What an answer means.

    Args:
        answer: what came; job: to a job, whose result may follow on its own.
    """
    if is_again(answer.status):
        return Verdict.AGAIN
    if job and answer.status == 202:
        return Verdict.ACCEPTED
    if job and answer.status == 204:
        return Verdict.REFUSED  # Whoever takes a job for a message keeps the result to itself.
    return Verdict.ANSWERED if 200 <= answer.status < 300 else Verdict.REFUSED


def problem(status: int, title: str, detail: str = "", retry_after_seconds: int | None = None) -> Answer:
    """An error as problem+json (RFC 9457).

    Args:
        status: the code; title: what is wrong, of all such; detail: of this one.
        retry_after_seconds: when to try again.
    """
    headers = {"content-type": MEDIA_TYPE}
    if retry_after_seconds is not None:
        headers["retry-after"] = str(retry_after_seconds)
    return Answer(status, headers, encoded(status, title, detail))


def reason(answer: Answer) -> str:
    """Why an answer is no success, in one line: what a problem+json says, else the beginning of a text."""
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
        return f"it is said to be at {answer.headers['location']}"[:REASON_LENGTH_MAX]
    return " ".join(answer.text.split())[:REASON_LENGTH_MAX] if kind == "text/plain" else ""
