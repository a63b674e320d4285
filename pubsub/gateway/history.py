"""The last hour of the cluster, kept in memory for the page.

A sample is computed from two successive reports: the difference of the servers' counters gives the rate. A restarted
server counts from 0, so it adds nothing to the rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pubsub.monitoring.unknown import unknown_topics

SAMPLE_SECONDS: Final = 5.0
"""Time between samples."""

SAMPLES_MAX: Final = 720
"""Samples kept: one hour."""


class Sample(NamedTuple):
    """The cluster at one time. None means unknown, because the server of some topic does not answer.

    Attributes:
        at: seconds since 1970.
        puts: messages put per second since the previous sample.
        backlog: sum over all subscribers.
        oldest: age in seconds of the oldest unacknowledged message.
        disk: bytes on the servers' disks.
        proxies, servers: number that answer.
        warnings: number of warnings and alarms.
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
        """Number of samples ever recorded."""
        self.rates: dict[str, float] = {}

    def add(self, report: Mapping[str, Any], at: float, now: float) -> None:
        """Record a report.

        Args:
            report: of the cluster.
            at: seconds since 1970, for display.
            now: the monotonic clock, for rates.
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
        self._append(Sample(round(at, 1), *[None] * (len(Sample._fields) - 1)))

    def _append(self, sample: Sample) -> None:
        self.count += 1
        self.samples.append(sample)

    def facts(self, behind: int = 0) -> dict[str, list[float | None]]:
        """Return one list for each field, without the first `behind` samples ever recorded."""
        new = list(self.samples)[max(0, len(self.samples) - (self.count - behind)) :]
        return {name: [getattr(sample, name) for sample in new] for name in Sample._fields}
