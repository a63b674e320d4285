"""The duration of puts as a proxy sees it: from forwarding a put to forwarding its answer.

A proxy keeps no state per request, so it times a sample: at most one request each SAMPLE_SECONDS, and one put of a
client at a time. A slow stream is timed completely. For a fast one the cost is a comparison for each request and a
look-up for each answer. A put that creates its topic is not timed.

The answer to a later put may also answer a timed one, because it confirms all records of the same log up to its own
(`cumulative`). A put that names no log is recognized by its own answer only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pubsub.base.histograms import SECONDS, Histogram

SAMPLE_SECONDS: Final = 0.005
"""Minimum time between two timed puts."""

SAMPLES_MAX: Final = 256
"""Limit of timed puts without an answer. One more drops the oldest."""

PATIENCE_SECONDS: Final = 30.0
"""Time after which an unanswered put is dropped, because its client has repeated it or is gone."""

_PUT: Final = re.compile(rb"\d+-(\d+)-\d+-PUT \S+ \S+ (\d{1,19}) ")
_COUNT: Final = re.compile(rb" count=(\d{1,19})")
_LOG: Final = re.compile(rb" log=([0-9a-f]+)")
_STATUS: Final = re.compile(rb"\d+-\d+-(\d+)-STATUS \S+ (\S+) ")
_LAST: Final = re.compile(rb" last=(\d{1,19})")


@dataclass(slots=True)
class Sample:
    """A timed put in flight.

    Attributes:
        since: the monotonic time at which it was forwarded, in seconds.
        callback: the client's callback, which its own answer names.
        log: the log that it names; b"" for none.
        last: its last counter.
    """

    since: float
    callback: bytes
    log: bytes
    last: int


class Samples:
    """The puts that a proxy times.

    Attributes:
        histogram: seconds from forwarding a put to forwarding its success.
        due: the monotonic time from which the next request is timed, in seconds.
        given_up: number of timed puts without such an answer in time.
        waiting: by client, its timed put without an answer.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(SECONDS)
        self.due = 0.0
        self.given_up = 0
        self.waiting: dict[bytes, Sample] = {}

    def forwarded(self, client: bytes, head: bytes, now: float) -> None:
        """Time a request that was forwarded at or after `due`, if it is a put.

        Args:
            client: the origin that its answers will name.
            head: prefix and header.
            now: monotonic seconds.
        """
        self.due = now + SAMPLE_SECONDS
        put = _PUT.match(head)
        if put is None:
            return
        before = self.waiting.get(client)
        if before is not None and now - before.since < PATIENCE_SECONDS:
            return
        if before is not None:
            self._give_up(client)
        elif len(self.waiting) >= SAMPLES_MAX:
            self._give_up(next(iter(self.waiting)))
        count, log = _COUNT.search(head), _LOG.search(head)
        last = int(put[2]) + (int(count[1]) if count is not None else 1) - 1
        self.waiting[client] = Sample(now, put[1], b"" if log is None else log[1], last)

    def answered(self, client: bytes, head: bytes, now: float) -> None:
        """Handle an answer to a client with a timed put.

        Args:
            client: as in `forwarded`.
            head: prefix and header of the answer.
            now: monotonic seconds.
        """
        sample, status = self.waiting[client], _STATUS.match(head)
        if status is None:
            return
        own = status[1] == sample.callback
        if status[2] != b"success":
            if own:  # The put was not taken, or was taken by an earlier attempt. The client may repeat it.
                self._give_up(client)
            return
        log, last = _LOG.search(head), _LAST.search(head)
        later = log is not None and log[1] == sample.log and last is not None and int(last[1]) >= sample.last
        if own or later:
            self.histogram.observe(now - sample.since)
            del self.waiting[client]

    def _give_up(self, client: bytes) -> None:
        self.given_up += 1
        del self.waiting[client]
