"""Add the time to live of a put to the headers of its messages (docs/explanation/ttl.md, TL1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pubsub.client.arguments import Headers, check_bodies
from pubsub.errors import CallerError
from pubsub.protocol.time_to_live import TTL, ttl_value


def with_ttl(headers: Headers | None, ttl: float) -> Headers:
    """Return headers with a time to live.

    Args:
        headers: those of the caller.
        ttl: in seconds.

    Raises:
        CallerError: the time is not allowed, or the headers have one already.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise CallerError(f"ttl is a number of seconds, or None, not {ttl!r:.60}")
    if headers is not None and not isinstance(headers, Mapping):
        raise CallerError(f"headers is a mapping of names to bytes, or None, not {type(headers).__name__}")
    if headers and TTL in headers:
        raise CallerError(f"the header {TTL} is a time to live; give only one of it and ttl")
    try:
        return {**(headers or {}), TTL: ttl_value(ttl)}
    except (ValueError, OverflowError) as error:
        raise CallerError(f"ttl {error}") from None


def all_with_ttl(
    bodies: Sequence[bytes], headers: Sequence[Headers | None], ttl: float
) -> tuple[Sequence[bytes], Sequence[Headers]]:
    """Return the bodies, and the headers of each message with a time to live. Raises as `with_ttl` and `put_many`."""
    bodies = check_bodies(bodies)
    if headers and len(headers) != len(bodies):
        raise CallerError(f"headers has one for each message, or none: {len(headers)} for {len(bodies)} messages")
    return bodies, [with_ttl(each, ttl) for each in headers or [None] * len(bodies)]
