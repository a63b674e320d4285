"""Compute the due time of a delayed message, once, at the call (docs/explanation/delay.md, DM1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import DELAY_SECONDS_MAX
from pubsub.errors import CallerError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAYS: Final = DELAY_SECONDS_MAX // 86400

STEP: Final = MICROSECONDS // 10
"""A publisher rounds a delay up to this step, so that its messages share batches."""


def due_time(delay: float | None, deliver_at: datetime | None, wall: float, step: int = 1) -> int:
    """Return the due time in microseconds since 1970; 0 for a message without a delay.

    Args:
        delay: seconds from now.
        deliver_at: a moment with a time zone; one that has passed counts as now.
        wall: the present time, seconds since 1970.
        step: microseconds; a delay is rounded up to a multiple of it.

    Raises:
        CallerError: both are given, or a value is not allowed.
    """
    if delay is not None and deliver_at is not None:
        raise CallerError("delay and deliver_at both say when a message is due; give only one of them")
    now = int(wall * MICROSECONDS)
    if deliver_at is not None:
        due = _moment(deliver_at)
    elif delay is None:
        return 0
    else:
        due = now + int(_seconds(delay) * MICROSECONDS)
        due = -(-due // step) * step if delay else 0
    if due > now + DELAY_SECONDS_MAX * MICROSECONDS + step:
        raise CallerError(f"a message can be delayed by {_DAYS} days at most: DELAY_SECONDS_MAX")
    return due


def _seconds(delay: float) -> float:
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise CallerError(f"delay is a number of seconds, not {delay!r:.60}")
    if not 0 <= delay <= DELAY_SECONDS_MAX:
        raise CallerError(f"delay is between 0 and {DELAY_SECONDS_MAX} seconds ({_DAYS} days), not {delay}")
    return delay


def _moment(deliver_at: datetime) -> int:
    if not isinstance(deliver_at, datetime):
        raise CallerError(f"deliver_at is a datetime with a time zone, not {deliver_at!r:.60}")
    if deliver_at.utcoffset() is None:
        raise CallerError(f"deliver_at needs a time zone: datetime(…, tzinfo=UTC), not {deliver_at!r}")
    return max(1, (deliver_at - _EPOCH) // _MICROSECOND)
