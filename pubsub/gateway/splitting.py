"""A request's body as messages: one, or one for each line (newline-delimited JSON).

A line is a message byte for byte: nothing is parsed, so that whatever JSON it is arrives as it was sent.
"""

from __future__ import annotations

from typing import Final

LINES: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
"""Media types of bodies of which each line is a message."""

MESSAGES: Final = "application/vnd.pubsub.messages+x-ndjson"
"""The media type of bodies of which each line is a JSON object with a message's body, key and headers."""


def media_type(content_type: str) -> str:
    """The media type that a Content-Type header names, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def split_lines(body: bytes) -> list[bytes]:
    """The lines of a body, without their ends; empty ones are none, as newline-delimited JSON has it."""
    lines = body.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if b"\r" in body:
        lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    return lines if all(lines) else [line for line in lines if line]
