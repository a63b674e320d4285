"""The measurements of a server, if they are reported: histograms, and the start time of requests under way.

The core decides which times are measured, and since when. The shells, which have a clock, record the end.
"""

from __future__ import annotations

from typing import NamedTuple

from pubsub.base.histograms import AGES, COUNTS, SECONDS, Histogram


class Timing(NamedTuple):
    """An observation to make when a successful answer has left.

    Attributes:
        histogram: receives the observation.
        since: monotonic seconds; the time since then is observed.
    """

    histogram: Histogram
    since: float


class Measures:
    """The measurements of one server.

    Attributes:
        puts: seconds from the read of a put from its socket to the send of its answer. Puts with one common answer
            count once.
        deliveries: seconds from the put of a message to the send of the answer that contains it, for the first message
            of each answer.
        commits: seconds of SQLite's COMMIT, which is one fsync of the write-ahead log.
        requests: number of requests in a turn with a commit. They shared that commit.
        records: number of records put in one commit.
        taken: requests in this turn. Requests in a turn without a commit, mostly heartbeats, share none.
        put: the timing for the answers to all puts of this turn.
    """

    def __init__(self) -> None:
        self.puts, self.deliveries, self.commits = Histogram(SECONDS), Histogram(AGES), Histogram(SECONDS)
        self.requests, self.records = Histogram(COUNTS), Histogram(COUNTS)
        self.taken = self._records = 0
        self.put = Timing(self.puts, 0.0)

    def turn(self, now: float) -> None:
        """Begin a turn of the loop."""
        self.put, self.taken = Timing(self.puts, now), 0

    def committed(self, seconds: float, records: int) -> None:
        """Record that a loop's changes are durable.

        Args:
            seconds: duration of the COMMIT.
            records: number of records put since the server started.
        """
        self.commits.observe(seconds)
        self.requests.observe(self.taken)
        self.records.observe(records - self._records)
        self._records = records
