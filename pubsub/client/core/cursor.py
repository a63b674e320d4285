"""Keep a client's place in a topic: positions, taken counters, and attempts at the next message.

    safe  ≤  position
    safe      covered by an fsync: a GET names it as `last`, so that the server may drop everything up to there
    position  the application has everything up to here, committed; it survives the end of the process

The last taken counter of each publisher keeps out a message that comes again at another position. The counters outlive
a subscription, because a new one at the end, or a continued one, may receive earlier records. A subscription with an
earlier start begins without counters, because it must receive taken messages again.

The rules are those of docs/explanation/get.md, G7, G11 and G12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubsub.client.core.waiting import Retry
from pubsub.protocol import Position


class Cursor:
    """A place in a topic.

    Args:
        load: returns the last taken counters by publisher; called once, at first use.

    Attributes:
        position, safe: see the module; None before the service has confirmed a position.
        acknowledged: the safe position named by the last GET.
        tried: (log, offset) of the message that a handler has processed `attempts` times.
        counted_ahead: True if the last of these attempts was counted with the previous message and has not begun.
        retry: the wait of the next message, which failed or was put off; None: it does not wait.
    """

    def __init__(self, load: Callable[[], dict[str, int]]) -> None:
        self.position: Position | None = None
        self.safe: Position | None = None
        self.acknowledged: Position | None = None
        self.tried: tuple[str | None, int | None] | None = None
        self.attempts = 0
        self.counted_ahead = False
        self.retry: Retry | None = None
        self._load = load
        self._taken: dict[str, int] | None = None

    def load(self, position: Position | None, tried: tuple[str | None, int | None], attempts: int) -> None:
        """Load the state from the store, where it is fsynced."""
        self.begin(position)
        self.tried, self.attempts = tried, attempts

    def begin(self, position: Position | None) -> None:
        """Set all positions to the one that the service named; a message that waits before it is not the next one."""
        self.position = self.safe = self.acknowledged = position
        self.retry = None

    def forget(self) -> None:
        """Forget the position and keep the taken counters."""
        self.begin(None)
        self.attempted(None, 0)

    def forget_taken(self) -> None:
        """Forget the taken counters, as the store did, so that taken messages may come again."""
        self._taken = {}

    # Taken counters

    @property
    def taken(self) -> dict[str, int]:
        if self._taken is None:
            self._taken = self._load()
        return self._taken

    def reach(self, position: Position, counters: Mapping[str, int]) -> None:
        """Move the position, with the last counters up to there."""
        self.position = position
        if counters:
            self.taken.update(counters)

    def sync(self, position: Position | None) -> None:
        self.safe = position

    # Attempts

    def attempt(self, position: Position) -> int:
        """Return the number of the next attempt at a message, from 1; `attempted` follows the commit that counts it."""
        if self.tried != position:
            return 1
        return self.attempts if self.counted_ahead else self.attempts + 1

    def attempted(self, position: Position | None, attempts: int, *, ahead: bool = False) -> None:
        """Record a counted attempt. `ahead`: counted in the commit of the previous message, and not begun."""
        self.tried, self.attempts, self.counted_ahead = position, attempts, ahead
        if self.retry is not None and self.retry.position != position:
            self.retry = None

    @property
    def later(self) -> int:
        """Number of the counted attempts that put the message off, and are no failures."""
        return 0 if self.retry is None else self.retry.later

    def gated(self, now: float) -> bool:
        """Return True if the next message is known to wait. Takes no lock and changes nothing."""
        retry = self.retry
        return retry is not None and retry.met and now < retry.due

    def waits(self, position: Position, now: float) -> bool:
        """Return True if the next message, at `position`, waits; a wait of another message is over."""
        if self.retry is None:
            return False
        if self.retry.position != position:
            self.retry = None
            return False
        self.retry.met = True
        return now < self.retry.due
