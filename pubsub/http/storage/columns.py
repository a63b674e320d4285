"""Headers and answers as columns, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pubsub.http.core.answers import Answer


def headers_text(headers: Mapping[str, str]) -> str:
    """Headers as one text."""
    return json.dumps(dict(headers), separators=(",", ":"))


def read_headers(text: str) -> dict[str, str]:
    """Headers from their text."""
    return {str(name): str(value) for name, value in json.loads(text).items()}


def answer_columns(answer: Answer | None) -> tuple[int | None, str | None, bytes | None]:
    """An answer as status, headers and body; three times None for none."""
    return (None, None, None) if answer is None else (answer.status, headers_text(answer.headers), answer.body)


def read_answer(status: int | None, headers: str | None, body: bytes | None) -> Answer | None:
    """The answer from its columns."""
    return None if status is None else Answer(status, read_headers(headers or "{}"), body or b"")
