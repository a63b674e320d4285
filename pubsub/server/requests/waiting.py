"""The age and size of subscribers' backlogs, looked up in the store for a report."""

from __future__ import annotations

from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.server.state.state import State
from pubsub.server.topic.spans import ALWAYS, Span
from pubsub.server.topic.topic import Log, Topic

LOOKUPS_MAX: Final = 5_000
"""Batches with a timestamp lookup in one report; subscribers at the same position share one lookup."""


class Waiting:
    """The backlogs of subscribers, for one report.

    Args:
        now: monotonic seconds.

    Attributes:
        lookups: number of lookups made.
        left_out: subscribers without a lookup because of the limit.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        self._stamps: dict[tuple[int, int], int | None] = {}
        self.lookups = self.left_out = 0

    def age(self, stamp: int) -> float | None:
        """Return the age of a timestamp in seconds; None for 0."""
        return round(self._state.stamps.age(stamp, self._now), 3) if stamp else None

    def due(self, topic: Topic, spans: tuple[Span, ...]) -> list[Span]:
        """Return each span without the batches at its front that it leaves out by timestamp."""
        return [_due(self._state, topic, span) for span in spans]

    def oldest(self, topic: Topic, spans: list[Span]) -> float | None:
        """Return the age in seconds of the oldest message in these spans, by its timestamp.

        Args:
            spans: as `due` returned them.

        Returns:
            None if no message waits, or the age is unknown: the store is damaged there, or LOOKUPS_MAX is reached.
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
        """Return the timestamp of the batch that holds an offset, or of the next batch; None if it cannot be read."""
        reader = self._state.reader
        try:
            found = reader.newest(log.number, 1, low)
            if found is None or found[0] + found[1] <= low:
                found = next(iter(reader.stamps(log.number, low, 1)), None)
        except StoreDamaged:
            return None
        # A batch without a row was put in this very loop.
        return self._state.stamps.reading(self._now) if found is None else found[2]


def _due(state: State, topic: Topic, span: Span) -> Span:
    """Return a span from the first batch that it does not leave out by timestamp; timestamps rise with offsets."""
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
