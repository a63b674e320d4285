"""Lengths of windows and delays in text: 90s, 15m, 1h, 2d, and the windows of the calendar."""

from __future__ import annotations

import re
from typing import Final

from pubsub.errors import CallerError

CALENDAR: Final = ("week", "month", "quarter", "year")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9}) ?([smhd])")


def duration(text: str, what: str) -> int:
    """Return the seconds of a text such as 90s, 15m, 1h or 2d.

    Raises:
        CallerError: the text is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise CallerError(f"{what} is {text}; give a number and s, m, h or d, such as 1h")
    return int(found.group(1)) * _SECONDS[found.group(2)]


def check_window(text: str) -> str:
    """Return the length of a window: a duration, or one of CALENDAR.

    Raises:
        CallerError: it is neither, or has no length.
    """
    if text not in CALENDAR and not duration(text, "the window"):
        raise CallerError("the window has no length; give at least 1s")
    return text


def check_late(text: str) -> str:
    """Return a delay that is a duration.

    Raises:
        CallerError: it is none.
    """
    duration(text, "the watermark")
    return text
