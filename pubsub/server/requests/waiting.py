"""For how long, and how much, a topic's subscribers are still to receive: what a report looks up in the store."""

from __future__ import annotations

from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.server.state.state import State
from pubsub.server.topic.spans import ALWAYS, Span
from pubsub.server.topic.topic import Log, Topic

LOOKUPS_MAX: Final = 5_000
"""Batches whose stamps one report looks up; subscribers that stand at the same place need one."""


class Waiting:
    """What waits for subscribers, for one report.

    Args:
        state: the server's.
        now: monotonic seconds.

    Attributes:
        lookups: how many batches were looked up.
        left_out: subscribers whose oldest message was not looked up any more.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        self._stamps: dict[tuple[int, int], int | None] = {}
        self.lookups = self.left_out = 0

    def due(self, topic: Topic, spans: tuple[Span, ...]) -> list[Span]:
        """The spans from the first batch on that each does not leave out by its stamp."""
        return [_due(self._state, topic, span) for span in spans]

    def oldest(self, topic: Topic, spans: list[Span]) -> float | None:
        """Seconds since the oldest message in these spans was put, by the stamp that it got then.

        Args:
            spans: as `due` gives them.

        Returns:
            None where nothing waits, or where that is not known: the store is damaged there, or LOOKUPS_MAX is reached.
        """
        ages = []
        for span in spans:
            log = topic.logs.get(span.log)
            if log is None:
                continue
            low = max(span.low, log.low)
            if low >= (log.end if span.high is None else min(span.high, log.end)):
                continue
            if (log.number, low) not in self._stamps:
                if self.lookups >= LOOKUPS_MAX:
                    self.left_out += 1
                    return None
                self.lookups += 1
                self._stamps[log.number, low] = self._stamp(log, low)
            stamp = self._stamps[log.number, low]
            if stamp is not None:
                ages.append(self._state.stamps.age(stamp, self._now))
        return max(ages, default=None)

    def _stamp(self, log: Log, low: int) -> int | None:
        """Of the batch that holds an offset, or else of the next one; None where that cannot be read."""
        reader = self._state.reader
        try:
            found = reader.newest(log.number, 1, low)
            if found is None or found[0] + found[1] <= low:
                found = next(iter(reader.stamps(log.number, low, 1)), None)
        except StoreDamaged:
            return None
        # What is in no row yet was put in this very loop.
        return self._state.stamps.reading(self._now) if found is None else found[2]


def _due(state: State, topic: Topic, span: Span) -> Span:
    """A span from its first batch on that it does not leave out by its stamp; stamps rise with offsets."""
    log = topic.logs.get(span.log)
    if span.since == ALWAYS or log is None:
        return span
    low = span.low
    high = max(low, log.end if span.high is None else min(span.high, log.end))
    end = high
    try:
        while low < high:
            middle = (low + high) // 2
            found = state.reader.newest(log.number, max(log.low, 1), middle)
            if found is None or found[2] <= span.since:
                low = middle + 1 if found is None else max(middle + 1, found[0] + found[1])
            else:
                high = max(span.low, min(middle, found[0]))
    except StoreDamaged:
        return span
    return span.from_offset(min(low, end))
