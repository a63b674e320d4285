"""The limits of outgoing rows and of their relay (docs/limits.md)."""

from __future__ import annotations

from typing import Final

OUTGOING_BYTES_MAX: Final = 16_760_832
"""Bytes of body and key of one outgoing row: a batch holds them with the largest headers. The table checks it."""

TAKEN_ROWS_MAX: Final = 5_000
"""Rows that the relay takes in one transaction."""

TAKEN_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of bodies and keys above which it takes no further row in that transaction."""

BLOCKED_TOPICS_MAX: Final = 10_000
"""Topics whose rows the relay leaves in the table because their messages cannot be sent at present."""

COUNTED_ROWS_MAX: Final = 100_000
"""Waiting rows up to which the relay counts them for its metrics."""
