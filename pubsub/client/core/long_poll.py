"""Time the GETs of a subscription: how long the server may hold one, and when the next one goes without a call.

The server may hold the GET after an empty answer twice as long. After an answer with records the next GET goes at once,
so the server prepares its answer while the application reads the records.
"""

from __future__ import annotations

from typing import Final

from pubsub.client.core.intent import NEVER

WAIT_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 10.0
"""Limits of the time for which the server may hold a GET: it doubles from the one to the other while no records
come.
"""

ACKNOWLEDGE_SECONDS: Final = 0.25
"""Time after which a GET held at the server is replaced by a new one, if there is more to acknowledge."""


class LongPoll:
    """The last GET of one subscription.

    Attributes:
        hungry: True if the last answer had records, so there may be more.
        sent_at: time of the last GET.
        asks: True if it asked for records, and did not only acknowledge.
        wait: seconds for which the server may hold the next one, unless a call waits for less.
    """

    def __init__(self) -> None:
        self.hungry = self.asks = False
        self.sent_at = self._held = 0.0
        self.wait = WAIT_SECONDS

    def sent(self, now: float, wait: float, *, asks: bool) -> None:
        """Record a GET that the server may hold for `wait` seconds."""
        self.sent_at, self._held, self.asks = now, wait, asks

    def answered(self, *, empty: bool) -> None:
        self.hungry = not empty
        self.wait = min(2 * self.wait, WAIT_SECONDS_MAX) if empty and self._held else WAIT_SECONDS

    def unanswered(self) -> None:
        """Record that the GET got no answer in time."""
        self.hungry = False

    def restart(self) -> None:
        """Begin anew after the subscription changed."""
        self.hungry, self.wait = False, WAIT_SECONDS

    def stop(self) -> None:
        """Send no GET for records without a call, and acknowledge at once."""
        self.hungry, self.sent_at = False, NEVER

    def held_beyond(self, until: float, now: float) -> bool:
        """Return True if the server has held the last GET for long, and may hold it beyond `until`."""
        return self.sent_at + WAIT_SECONDS < now and self.sent_at + self._held > until

    def acknowledge_at(self) -> float:
        """Return the time of the next GET, if only to acknowledge."""
        return self.sent_at + ACKNOWLEDGE_SECONDS
