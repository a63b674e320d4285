"""The last hour of the cluster, kept in memory: what the page draws.

A sample is made of two reports: what servers have counted since the one before gives the rate. A server that has
restarted counts from nothing, and so adds nothing to a rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pubsub.monitoring.unknown import unknown_topics

SAMPLE_SECONDS: Final = 5.0
"""Between samples."""

SAMPLES_MAX: Final = 720
"""Samples that are kept: an hour."""


class Sample(NamedTuple):
    """The cluster at one time. None stands for figures that are not known, as the server of some topic does not answer.

    Attributes:
        at: seconds since 1970.
        puts: messages put a second since the sample before.
        backlog: messages that subscribers are still to receive, all together.
        oldest: seconds since the oldest message was put that some subscriber has not acknowledged.
        disk: bytes on the servers' disks.
        proxies, servers: how many answer.
        warnings: how many there are, alarms too.
    """

    at: float
    puts: float | None
    backlog: int | None
    oldest: float | None
    disk: int | None
    proxies: int | None
    servers: int | None
    warnings: int | None


class History:
    """Samples, the oldest first."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._counted: dict[str, int] = {}
        self._at = 0.0
        self.count = 0
        """Samples that were ever taken."""
        self.rates: dict[str, float] = {}

    def add(self, report: Mapping[str, Any], at: float, now: float) -> None:
        """Take one more report.

        Args:
            report: of the cluster.
            at: seconds since 1970, for who looks at it.
            now: the monotonic clock, by which rates are made.
        """
        counted = {
            server["id"]: int(server["report"]["counters"].get("records", 0))
            for server in report["servers"]
            if server["report"] is not None
        }
        passed = now - self._at
        rated = not self._counted or counted.keys() <= self._counted.keys()
        self.rates = {
            server: max(0, count - self._counted[server]) / passed
            for server, count in counted.items()
            if server in self._counted and passed > 0
        }
        self._counted, self._at = counted, now
        known = not unknown_topics(report["topics"])
        waiting = [facts["waiting"] for topic in report["topics"] for facts in (topic["subscribers"] or {}).values()]
        ages = [topic["oldest_unacknowledged_seconds"] or 0.0 for topic in report["topics"]]
        disks = [server["report"]["disk"] or {} for server in report["servers"] if server["report"] is not None]
        self._append(
            Sample(
                at=round(at, 1),
                puts=round(sum(self.rates.values()), 1) if known and rated else None,
                backlog=sum(waiting) if known else None,
                oldest=round(max(ages, default=0.0), 1) if known else None,
                disk=sum(sum(disk.values()) for disk in disks) if known else None,
                proxies=sum(proxy["answered"] for proxy in report["proxies"]),
                servers=sum(server["answered"] for server in report["servers"]),
                warnings=len(report["warnings"]) + len(report["alarms"]),
            )
        )

    def miss(self, at: float) -> None:
        """Nobody answered: of this time nothing is known.

        Args:
            at: as for `add`.
        """
        self._append(Sample(round(at, 1), *[None] * (len(Sample._fields) - 1)))

    def _append(self, sample: Sample) -> None:
        self.count += 1
        self.samples.append(sample)

    def facts(self, behind: int = 0) -> dict[str, list[float | None]]:
        """Samples as JSON has them, a list for each of their fields, but the first `behind` that were ever taken."""
        new = list(self.samples)[max(0, len(self.samples) - (self.count - behind)) :]
        return {name: [getattr(sample, name) for sample in new] for name in Sample._fields}
