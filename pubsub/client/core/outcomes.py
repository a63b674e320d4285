"""Define what a handler raises to decide about its message: later, or never.

`Client.process`, `Client.serve` and their asynchronous forms understand both. The rule is
docs/explanation/retries.md, J2.
"""

from __future__ import annotations

from typing import Final

from pubsub.errors import CallerError

LATER_SECONDS_MAX: Final = 90 * 24 * 3600.0
"""Longest time for which a handler may put its message off."""


class Later(Exception):
    """Raised by a handler: its message comes again after some seconds. Nothing else of the handler's work happens.

    The attempt does not count as a failure, so a message may be put off any number of times.

    Args:
        seconds: time until then; 0 to 7,776,000 (90 days).

    Raises:
        CallerError: the time is not allowed.
    """

    def __init__(self, seconds: float) -> None:
        allowed = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not allowed or not 0 <= seconds <= LATER_SECONDS_MAX:
            raise CallerError(f"Later takes 0 to {LATER_SECONDS_MAX:,.0f} seconds, not {seconds!r}")
        self.seconds = float(seconds)
        super().__init__(self.seconds)

    def __str__(self) -> str:
        return f"again in {self.seconds:g} s"


class Reject(Exception):
    """Raised by a handler: its message becomes a dead letter at once, without a further attempt.

    Args:
        reason: text for the dead letter.

    Raises:
        CallerError: the reason is not a text.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise CallerError(f"Reject takes a reason as text, not {type(reason).__name__}")
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotBegun:
    """Mark of an exception: the handler has done nothing, so its attempt counts in no case."""
