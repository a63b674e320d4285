"""A request's body as messages: one, or one for each line (newline-delimited JSON).

Each line is a message byte for byte. It is not parsed, so any JSON arrives as it was sent.
"""

from __future__ import annotations

from typing import Final

LINES: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
"""Media types of bodies with one message per line."""

MESSAGES: Final = "application/vnd.pubsub.messages+x-ndjson"
"""Media type of bodies with one JSON object per line, which has a message's body, key and headers."""


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def split_lines(body: bytes) -> list[bytes]:
    """Return the lines of a body without their ends; empty lines are skipped, as in newline-delimited JSON."""
    lines = body.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if b"\r" in body:
        lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    return lines if all(lines) else [line for line in lines if line]
