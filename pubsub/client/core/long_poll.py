"""The GET that went out last: how long the server may hold it, and whether the next one is sent without a call.

A GET that finds nothing is held twice as long the next time. An answer that brings something makes the next GET go out
at once, so that its answer is made at the server while this one is handed out.
"""

from __future__ import annotations

from typing import Final

from pubsub.client.core.intent import NEVER

WAIT_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 10.0
"""How long the server may hold a GET: doubling between these while nothing comes."""

ACKNOWLEDGE_SECONDS: Final = 0.25
"""A GET that is held at the server so long is sent anew where there is more to acknowledge."""


class LongPoll:
    """Of one subscription.

    Attributes:
        hungry: the last answer brought something, so there may be more.
        sent_at: when the last GET went out.
        asks: it asked for records, and did not only acknowledge.
        wait: seconds that the next one may be held where no call waits for less.
    """

    def __init__(self) -> None:
        self.hungry = self.asks = False
        self.sent_at = self._held = 0.0
        self.wait = WAIT_SECONDS

    def sent(self, now: float, wait: float, *, asks: bool) -> None:
        """A GET went out that may be held so long, in seconds."""
        self.sent_at, self._held, self.asks = now, wait, asks

    def answered(self, *, empty: bool) -> None:
        """It was answered."""
        self.hungry = not empty
        self.wait = min(2 * self.wait, WAIT_SECONDS_MAX) if empty and self._held else WAIT_SECONDS

    def unanswered(self) -> None:
        """It was not answered in its time."""
        self.hungry = False

    def restart(self) -> None:
        """Nothing of before counts."""
        self.hungry, self.wait = False, WAIT_SECONDS

    def stop(self) -> None:
        """Ask for nothing more without a call, and acknowledge at once."""
        self.hungry, self.sent_at = False, NEVER

    def held_beyond(self, until: float, now: float) -> bool:
        """Whether the last GET was held for long, and may be for longer than until then."""
        return self.sent_at + WAIT_SECONDS < now and self.sent_at + self._held > until

    def acknowledge_at(self) -> float:
        """When there is to be a GET again, if only to acknowledge."""
        return self.sent_at + ACKNOWLEDGE_SECONDS
