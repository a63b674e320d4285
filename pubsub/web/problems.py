"""Error responses of every HTTP server of this project: problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

MEDIA_TYPE: Final = "application/problem+json"

FULL_SECONDS: Final = 1
"""Default `Retry-After` of a 503 response, in seconds."""


class Refused(Exception):
    """A request that is rejected at once.

    Args:
        status: of the response.
        detail: one sentence, for a person.
        headers: further headers of the response.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
        if status == 503:
            self.headers.setdefault("retry-after", str(FULL_SECONDS))
        super().__init__(status, detail)

    def __str__(self) -> str:
        return self.detail


def encoded(status: int, title: str, detail: str = "", kind: str = "") -> bytes:
    """Return the JSON of a problem.

    Args:
        status: of the response.
        title: common to all problems of the kind.
        detail: about this problem.
        kind: a URI that a program can compare.
    """
    facts: dict[str, Any] = {"type": kind} if kind else {}
    facts |= {"title": title, "status": status}
    if detail:
        facts["detail"] = detail
    return json.dumps(facts).encode()
