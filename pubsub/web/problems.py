"""Why a request is refused, as every HTTP server of this project says it: problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

MEDIA_TYPE: Final = "application/problem+json"

FULL_SECONDS: Final = 1
"""Seconds that an answer of 503 asks to wait, where it names no others."""


class Refused(Exception):
    """A request that is answered at once.

    Args:
        status: of the answer.
        detail: one sentence, for a person.
        headers: more of the answer.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
        if status == 503:
            self.headers.setdefault("retry-after", str(FULL_SECONDS))
        super().__init__(status, detail)

    def __str__(self) -> str:
        return self.detail


def encoded(status: int, title: str, detail: str = "", kind: str = "") -> bytes:
    """The JSON of a problem.

    Args:
        status: of the answer.
        title: of all problems of the kind.
        detail: of this one.
        kind: a URI that a program can compare.
    """
    facts: dict[str, Any] = {"type": kind} if kind else {}
    facts |= {"title": title, "status": status}
    if detail:
        facts["detail"] = detail
    return json.dumps(facts).encode()
