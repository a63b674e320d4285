"""How long puts take, as a proxy sees it: from forwarding one to passing its answer on.

A proxy holds nothing per request, so it looks at some: at most one request each SAMPLE_SECONDS, and one put of a client
at a time. What comes slower than that is all looked at; beyond it the cost is a comparison for a request and a look-up
for an answer. A put that makes its topic is none of them. One may be answered by the answer to a later one, which says
of the same log that all up to there is held (`cumulative`); so one that names no log is known by its own answer only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pubsub.base.histograms import SECONDS, Histogram

SAMPLE_SECONDS: Final = 0.005
"""Between two puts that are looked at."""

SAMPLES_MAX: Final = 256
"""Puts that are looked at and not answered; with one more the one that was forwarded first is given up."""

PATIENCE_SECONDS: Final = 30.0
"""A put that is not answered for so long is given up: its client has sent it again, or has gone."""

_PUT: Final = re.compile(rb"\d+-(\d+)-\d+-PUT \S+ \S+ (\d{1,19}) ")
_COUNT: Final = re.compile(rb" count=(\d{1,19})")
_LOG: Final = re.compile(rb" log=([0-9a-f]+)")
_STATUS: Final = re.compile(rb"\d+-\d+-(\d+)-STATUS \S+ (\S+) ")
_LAST: Final = re.compile(rb" last=(\d{1,19})")


@dataclass(slots=True)
class Sample:
    """A put under way.

    Attributes:
        since: when it was forwarded (monotonic seconds).
        callback: of the client, which its own answer names.
        log: that the put names; b"" for none.
        last: its last counter.
    """

    since: float
    callback: bytes
    log: bytes
    last: int


class Samples:
    """The puts that a proxy looks at.

    Attributes:
        histogram: seconds from forwarding one to passing on an answer that says that it is taken.
        due: when a request is to be looked at again, on the monotonic clock in seconds.
        given_up: puts of which no such answer came in time.
        waiting: by client, the put that is looked at and not answered.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(SECONDS)
        self.due = 0.0
        self.given_up = 0
        self.waiting: dict[bytes, Sample] = {}

    def forwarded(self, client: bytes, head: bytes, now: float) -> None:
        """A request has been forwarded, and it is time to look at one.

        Args:
            client: whose it is, as its answers will name it.
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
        """An answer was passed on to a client of which a put is looked at.

        Args:
            client: as of `forwarded`.
            head: prefix and header of the answer.
            now: monotonic seconds.
        """
        sample, status = self.waiting[client], _STATUS.match(head)
        if status is None:
            return
        own = status[1] == sample.callback
        if status[2] != b"success":
            if own:  # It was not taken, or before: it may be tried again.
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
