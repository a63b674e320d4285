"""The time to live of a message: a header that the receiving client compares with its clock (docs/explanation/ttl.md).

    $ttl=30     the message expires 30 seconds after its timestamp

The value is a decimal number of seconds. A header with another value is an ordinary header: such a message never
expires. A server does not look into a batch, so the header costs it nothing.
"""

from __future__ import annotations

import math
import re
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import DecodeError
from pubsub.protocol.headers import decode_headers

TTL: Final = "$ttl"
"""The name of the header."""

TTL_SECONDS_MIN: Final = 0.001
TTL_SECONDS_MAX: Final = 10 * 365 * 24 * 3600
"""The longest time to live, ten years."""

_NAME: Final = TTL.encode("ascii")
_VALUE: Final = re.compile(rb"[0-9]{1,10}(\.[0-9]{1,6})?")


def ttl_value(seconds: float) -> bytes:
    """Return the value of the header for a time to live.

    Raises:
        ValueError: it is not between TTL_SECONDS_MIN and TTL_SECONDS_MAX.
    """
    if not (math.isfinite(seconds) and TTL_SECONDS_MIN <= seconds <= TTL_SECONDS_MAX):
        days = TTL_SECONDS_MAX // 86400
        raise ValueError(f"is between {TTL_SECONDS_MIN} and {TTL_SECONDS_MAX} seconds ({days} days), not {seconds}")
    return f"{seconds:.6f}".rstrip("0").rstrip(".").encode("ascii")


def is_over(block: bytes, stamp: int, now: int) -> bool:
    """Return True if the time to live of a message has ended; headers that cannot be read have none.

    Args:
        block: its encoded headers.
        stamp, now: its timestamp and the present time (microseconds since 1970).
    """
    return ends_at(block, stamp) <= now


def ends_at(block: bytes, stamp: int) -> float:
    """Return the time at which a message's time to live ends (microseconds since 1970).

    Args:
        block: its encoded headers; headers that cannot be read have no time to live.
        stamp: its timestamp (microseconds since 1970).

    Returns:
        Infinity if it has none.
    """
    try:
        ttl = ttl_of(block)
    except DecodeError:  # The application gets the error when it reads the headers.
        ttl = None
    return float("inf") if ttl is None else stamp + ttl


def ttl_of(block: bytes) -> int | None:
    """Return the time to live in encoded headers, in microseconds; None if they have none.

    Raises:
        DecodeError: the bytes are no headers.
    """
    if _NAME not in block:
        return None
    value = decode_headers(block).get(TTL)
    return None if value is None or not _VALUE.fullmatch(value) else int(float(value) * MICROSECONDS)
