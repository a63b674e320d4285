"""Messages per second, computed from two successive cluster reports.

A process counts since its start, so the difference of its uptimes is the time between two reports, and a smaller uptime
shows a restart. A topic has no counters. Its rates come from the positions and backlogs of its subscribers. For
example, a subscriber moved from `log.4` with 6 waiting to `log.9` with 11 waiting: it took 5, while 10 were put. A
topic without subscribers only grows, so its number of messages gives the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

SECONDS_MIN: Final = 0.5
"""Minimum time between two reports of a process; an earlier report is ignored."""

Facts = Mapping[str, Any]


class Rate(NamedTuple):
    """Messages per second.

    Attributes:
        puts: stored.
        deliveries: of a server: sent, repeats included. Of a topic: acknowledged by all its subscribers together.
    """

    puts: float
    deliveries: float


class Rates:
    """Rates between the last two reports.

    Attributes:
        servers: by ID, without servers that have restarted or reported only once.
        topics: by name; the sum over all servers that hold the topic.
    """

    def __init__(self) -> None:
        self.servers: dict[str, Rate] = {}
        self.topics: dict[str, Rate] = {}
        self._before: dict[str, Facts] = {}
        self._of: dict[str, dict[str, Rate]] = {}

    def add(self, report: Facts) -> None:
        """Add a report.

        Args:
            report: of the cluster, as `pubsub status --json` prints it.
        """
        answered = {one["id"]: one["report"] for one in report["servers"] if one["report"] is not None}
        for server, now in answered.items():
            before = self._before.get(server)
            passed = 0.0 if before is None else now["uptime_seconds"] - before["uptime_seconds"]
            same = before is not None and before["store"] == now["store"] and passed >= 0
            if before is not None and same and passed < SECONDS_MIN:
                continue
            self._before[server] = now
            if before is None or not same:
                self.servers.pop(server, None)
                self._of.pop(server, None)
                continue
            self.servers[server] = _server(before["counters"], now["counters"], passed)
            self._of[server] = {
                name: _topic(before["topics"][name], held, passed)
                for name, held in now["topics"].items()
                if name in before["topics"]
            }
        for known in (self.servers, self._of, self._before):
            for server in [name for name in known if name not in answered]:
                del known[server]
        self.topics = _sum(self._of)


def _server(before: Facts, now: Facts, seconds: float) -> Rate:
    puts, deliveries = (max(0, now.get(name, 0) - before.get(name, 0)) for name in ("records", "delivered"))
    return Rate(puts / seconds, deliveries / seconds)


def _topic(before: Facts, now: Facts, seconds: float) -> Rate:
    if before == now:
        return Rate(0.0, 0.0)
    puts, taken = 0, 0
    told = False
    for name, facts in now["subscribers"].items():
        known = before["subscribers"].get(name)
        if known is None:
            continue
        log, _, offset = facts["acknowledged"].partition(".")
        other, _, stood = known["acknowledged"].partition(".")
        more = facts["waiting"] - known["waiting"]
        if not offset or not stood or log != other:  # The log is another one: count the decrease of the backlog.
            taken += max(0, -more)
            continue
        told = True
        moved = max(0, int(offset) - int(stood))
        taken += moved
        puts = max(puts, moved + more)
    if not told:
        puts = now["records"] - before["records"]
    return Rate(max(0, puts) / seconds, taken / seconds)


def _sum(servers: Mapping[str, Mapping[str, Rate]]) -> dict[str, Rate]:
    out: dict[str, Rate] = {}
    for topics in servers.values():
        for name, rate in topics.items():
            known = out.get(name)
            out[name] = rate if known is None else Rate(known.puts + rate.puts, known.deliveries + rate.deliveries)
    return out
