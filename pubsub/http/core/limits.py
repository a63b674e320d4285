"""The limits of reliable HTTP that are no settings (docs/limits.md, *Reliable requests*)."""

from __future__ import annotations

from typing import Final

URL_LENGTH_MAX: Final = 8 * 1024
"""Characters of a URL, and of a request's path with its query."""

HEADERS_MAX: Final = 64
"""Header fields of one request or response that are kept."""

HEADERS_BYTES_MAX: Final = 16 * 1024
"""Bytes of the header fields of one request or response that are kept."""

READING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of bodies that are being read at the same time, of one application; one body is always allowed."""

PROBLEM_BYTES_MAX: Final = 64 * 1024
"""Bytes of a response that are read as JSON for its reason; of a larger one only the status is shown."""

FORGOTTEN_MAX: Final = 1_000_000
"""Sessions of senders of which a receiver remembers what is finished; beyond, the one silent for longest goes."""

SWEEP_ROWS_MAX: Final = 1_000
"""Tombstones that are taken out in one transaction."""

CONFIRM_TRIES_MAX: Final = 8
"""DELETEs of one confirmation URL; who never hears one keeps the response for as long as its tombstone."""
