"""The pace of readers that are far behind, so that they do not delay puts and current readers.

A reader is far behind if more than `BEHIND_BYTES` of its topic follow its position. Such readers come last in a turn,
and get at most `TURN_BYTES_MAX` in it. In a turn with puts, or with answers to current readers, their bytes also count
against `REPLAY_BYTES_MAX` a second. In other turns they have no pace, so a replay alone runs at full speed.

The rule is docs/explanation/replay.md, I12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic

REPLAY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes a second of all readers far behind, counted in turns with other work."""

BEHIND_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a topic after the position of a reader that is far behind."""

TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of all readers far behind in one turn. The last answer may exceed it."""


class Replays:
    """The bytes that one server may hand out to readers far behind.

    Attributes:
        shared: True if this turn has puts, or records for current readers.
    """

    def __init__(self) -> None:
        self.shared = False
        self._allowed = float(TURN_BYTES_MAX)
        self._in_turn = 0
        self._at = float("inf")

    def begin(self, now: float) -> None:
        """Begin the deliveries of a turn. `now`: monotonic seconds."""
        passed = max(0.0, now - self._at)
        self._allowed = min(float(TURN_BYTES_MAX), self._allowed + passed * REPLAY_BYTES_MAX)
        self._at, self._in_turn = now, 0

    def end(self) -> None:
        """End the deliveries of a turn."""
        self.shared = False

    def next_at(self, now: float) -> float | None:
        """Return the time of the next answer to a reader far behind; None: it may have one now."""
        if self._in_turn >= TURN_BYTES_MAX:
            return now
        if self.shared and self._allowed <= 0:
            return now - self._allowed / REPLAY_BYTES_MAX
        return None

    def handed_out(self, size: int) -> None:
        """Count the bytes of an answer to a reader far behind."""
        self._in_turn += size
        if self.shared:
            self._allowed -= size


def is_far_behind(topic: Topic, log: str, total: int) -> bool:
    """Return True if more than `BEHIND_BYTES` of the topic follow a place in a log, `total` bytes after its begin."""
    open_ = topic.open
    after = topic.logs[log].total - total
    return (after if log == open_.id else after + open_.total) > BEHIND_BYTES


def begins_far_behind(topic: Topic, spans: Sequence[Span], reader: BatchReader) -> bool:
    """Return True if a reader of these spans is far behind.

    Raises:
        StoreDamaged: a row cannot be read.
    """
    log = topic.logs.get(spans[0].log) if spans else None
    if log is None or (log is topic.open and log.total <= BEHIND_BYTES):
        return False
    total = reader.total_before(log.number, spans[0].low)
    return total is not None and is_far_behind(topic, log.id, total)
