"""Where one client stands in a topic: its places, the counters that it has taken, and attempts at what comes next.

    safe  ≤  position
    safe      an fsync covers it: what a GET names as `last`, so that the server may forget everything up to there
    position  the application has it, committed; it survives the process

The last counter taken of each publisher keeps out what comes once more at another position. The counters outlive a
subscription: one that begins at the end, or is continued, may be sent records of before. They belong to the number of
one that begins earlier: it is to receive again what was taken, so it begins without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubsub.protocol import Position


class Cursor:
    """A place in a topic.

    Args:
        load: gives the last counters taken, by publisher; asked once, when they are needed.

    Attributes:
        position, safe: see above; None before the service has said where the subscription stands.
        acknowledged: what the last GET named as safe.
        tried: the message that a handler has seen `attempts` times, as (log, offset).
        counted_ahead: the last of these attempts was counted with the message before, and is still to be made.
    """

    def __init__(self, load: Callable[[], dict[str, int]]) -> None:
        self.position: Position | None = None
        self.safe: Position | None = None
        self.acknowledged: Position | None = None
        self.tried: tuple[str | None, int | None] | None = None
        self.attempts = 0
        self.counted_ahead = False
        self._load = load
        self._taken: dict[str, int] | None = None

    def load(self, position: Position | None, tried: tuple[str | None, int | None], attempts: int) -> None:
        """This is in the store, and fsynced."""
        self.begin(position)
        self.tried, self.attempts = tried, attempts

    def begin(self, position: Position | None) -> None:
        """The service says that it stands here."""
        self.position = self.safe = self.acknowledged = position

    def forget(self) -> None:
        """Where it stands is not known any more; what was taken still is."""
        self.begin(None)
        self.attempted(None, 0)

    def forget_taken(self) -> None:
        """What was taken may come again; the store has no counter of it either."""
        self._taken = {}

    # What was taken

    @property
    def taken(self) -> dict[str, int]:
        """The last counter taken of each publisher."""
        if self._taken is None:
            self._taken = self._load()
        return self._taken

    def reach(self, position: Position, counters: Mapping[str, int]) -> None:
        """The application has everything up to this position; these are the last counters of it."""
        self.position = position
        if counters:
            self.taken.update(counters)

    def sync(self, position: Position | None) -> None:
        """An fsync covers everything up to this position."""
        self.safe = position

    # Attempts

    def attempt(self, position: Position) -> int:
        """Which attempt at a message the next one is, from 1; `attempted` follows the commit that counts it."""
        if self.tried != position:
            return 1
        return self.attempts if self.counted_ahead else self.attempts + 1

    def attempted(self, position: Position | None, attempts: int, *, ahead: bool = False) -> None:
        """An attempt was counted. `ahead`: in the commit of the message before, so it is still to be made."""
        self.tried, self.attempts, self.counted_ahead = position, attempts, ahead
