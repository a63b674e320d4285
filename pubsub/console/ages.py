"""Read ages of the command line, such as 90s, 15m, 2h and 30d."""

from __future__ import annotations

import re
from typing import Final

from pubsub.errors import CallerError

_AGE: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def is_age(text: str) -> bool:
    return _AGE.fullmatch(text) is not None


def parse_age(name: str, text: str) -> float:
    """Return an age in seconds.

    Args:
        name: the option or argument, for the error.

    Raises:
        CallerError: it has another form.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise CallerError(f"{name} is an age such as 90s, 15m, 2h or 30d, not {text!r:.80}")
    return float(int(match[1]) * _UNITS[match[2]])
