"""The delay that a put's query asks for: `delay`, in seconds, or `deliver_at`, a time of RFC 3339 with a time zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from pubsub.client.due import due_time
from pubsub.errors import CallerError
from pubsub.gateway.problems import Problem


class Delay(NamedTuple):
    """The delay of a put.

    Attributes:
        due: microseconds since 1970; 0: none.
        text: the query's words, by which a repeated request is recognised; "" for none.
    """

    due: int
    text: str


def read_delay(query: Mapping[str, str], wall: float) -> Delay:
    """Return the delay that a query asks for.

    Args:
        query: the parameters of the request.
        wall: the present time, seconds since 1970.

    Raises:
        Problem: a parameter cannot be read or is out of range.
    """
    delay, moment = query.get("delay"), query.get("deliver_at")
    if delay is None and moment is None:
        return Delay(0, "")
    try:
        seconds = None if delay is None else float(delay)
        at = None if moment is None else datetime.fromisoformat(moment)
    except ValueError:
        wanted = "delay is a number of seconds, and deliver_at a time such as 2026-12-01T08:00:00Z"
        raise Problem("bad-request", f"The query cannot be read: {wanted}; nothing was put.") from None
    try:
        return Delay(due_time(seconds, at, wall), f" {delay} {moment}")
    except CallerError as error:
        raise Problem("bad-request", f"{str(error)[:1].upper()}{str(error)[1:]}; nothing was put.") from None
