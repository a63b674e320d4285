"""What a server measures of itself, where somebody is told: histograms, and since when a request is under way.

The core says what is to be measured, and since when; the shells, which have a clock, say when it was over.
"""

from __future__ import annotations

from typing import NamedTuple

from pubsub.base.histograms import AGES, COUNTS, SECONDS, Histogram


class Timing(NamedTuple):
    """What is to be observed when an answer that says success has gone out.

    Attributes:
        histogram: where.
        since: monotonic seconds; what is observed is the time from then on.
    """

    histogram: Histogram
    since: float


class Measures:
    """Of one server.

    Attributes:
        puts: from a put's being taken from its socket to its answer's being given to one; seconds. Puts that are
            answered by one answer count once.
        deliveries: from when a message was put to when the answer that hands it out is given to a socket, of the
            first message of each answer; seconds.
        commits: SQLite's COMMIT, which is one fsync of the write-ahead log; seconds.
        requests: taken in a turn that ended with a commit, which they shared.
        records: put in one commit.
        taken: requests in this turn. What came in turns without a commit, heartbeats mostly, shared none.
        put: the timing of the answers to all puts that are taken in this turn.
    """

    def __init__(self) -> None:
        self.puts, self.deliveries, self.commits = Histogram(SECONDS), Histogram(AGES), Histogram(SECONDS)
        self.requests, self.records = Histogram(COUNTS), Histogram(COUNTS)
        self.taken = self._records = 0
        self.put = Timing(self.puts, 0.0)

    def turn(self, now: float) -> None:
        """A turn of the loop begins."""
        self.put, self.taken = Timing(self.puts, now), 0

    def committed(self, seconds: float, records: int) -> None:
        """A loop's changes are durable.

        Args:
            seconds: that its COMMIT took.
            records: put since the server started.
        """
        self.commits.observe(seconds)
        self.requests.observe(self.taken)
        self.records.observe(records - self._records)
        self._records = records
