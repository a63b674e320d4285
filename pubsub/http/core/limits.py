"""Limits of reliable HTTP that are not settings (docs/limits.md, *Reliable requests*)."""

from __future__ import annotations

from typing import Final

URL_LENGTH_MAX: Final = 8 * 1024
"""Characters of a URL, and of a request's path with its query."""

HEADERS_MAX: Final = 64
"""Stored header fields of one request or response."""

HEADERS_BYTES_MAX: Final = 16 * 1024
"""Bytes of the stored header fields of one request or response."""

READING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of the bodies that one application reads at the same time; one body is always allowed."""

PROBLEM_BYTES_MAX: Final = 64 * 1024
"""Bytes of a response that are parsed as JSON for its reason; for a larger one only the status is shown."""

FORGOTTEN_MAX: Final = 1_000_000
"""Sender sessions with stored `Reliable-Finished` numbers. Beyond it the session silent for longest is removed."""

SWEEP_ROWS_MAX: Final = 1_000
"""Tombstones removed in one transaction."""

CONFIRM_TRIES_MAX: Final = 8
"""Tries of a confirmation. A receiver that gets none keeps the response as long as its tombstone."""
