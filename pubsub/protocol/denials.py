"""The sentence in a proxy's denial of a request."""

from __future__ import annotations

from typing import Final

from pubsub.protocol.messages import Status

SENTENCE_CHARACTERS_MAX: Final = 300
"""Limit of the characters of a denial that are shown."""


def denial(status: Status) -> str:
    """Return the sentence in a proxy's denial. It came over the network, so control characters are replaced."""
    said = bytes(status.body).decode("utf-8", "replace")[:SENTENCE_CHARACTERS_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in said).strip()
