"""Decide from which topics the relay takes no rows now, because their messages cannot be sent as fast.

The rows of a full topic stay in the table, and those of other topics go on. A topic that is full only for a moment is
waited for: otherwise each look for rows of other topics would pass over all of its rows.

The rule is docs/explanation/outgoing.md, OR4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.client.core.chain import Chain
from pubsub.client.outgoing.limits import BLOCKED_TOPICS_MAX

FULL_ROWS: Final = 64
"""Unfinished batches at which a topic is full; below half of it, it has room again."""

FULL_BYTES: Final = 8 * 1024 * 1024
"""The same for bytes."""

SLOW_SECONDS: Final = 2.0
"""Time for which a topic is full before it counts as slow, until all of its messages are sent."""


class Pressure:
    """The full topics of a relay.

    Attributes:
        slow: topics that were full for long, and have unfinished messages since.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.slow: set[str] = set()

    def look(self, chains: Iterable[Chain], now: float) -> tuple[list[str], list[str]]:
        """Look at the chains with unfinished messages; the others have room.

        Returns:
            The topics that have become slow, and those that are so no more.
        """
        found = {chain.topic: chain for chain in chains}
        for topic in [topic for topic in self._since if topic not in found or has_room(found[topic])]:
            del self._since[topic]
        for topic, chain in found.items():
            if is_full(chain):
                self._since.setdefault(topic, now)
        became = [topic for topic, since in self._since.items() if now - since >= SLOW_SECONDS]
        became = [topic for topic in became if topic not in self.slow]
        over = [topic for topic in sorted(self.slow) if topic not in found]
        self.slow.update(became)
        self.slow.difference_update(over)
        return sorted(became), over

    @property
    def full(self) -> list[str]:
        """The topics whose rows stay in the table now."""
        return list(self._since)

    @property
    def waits(self) -> bool:
        """True if nothing is taken now: a full topic will have room soon, or too many topics are full."""
        return len(self._since) > BLOCKED_TOPICS_MAX or any(topic not in self.slow for topic in self._since)


def is_full(chain: Chain) -> bool:
    """Return True if no further row of a topic is taken."""
    return len(chain.rows) >= FULL_ROWS or chain.size >= FULL_BYTES


def has_room(chain: Chain) -> bool:
    """Return True if a topic that was full is so no more."""
    return len(chain.rows) < FULL_ROWS // 2 and chain.size < FULL_BYTES // 2
