"""Messages a second, from one report on the cluster and the one before.

A process counts since its start, so its own uptime says how much time lies between two of its reports, and whether it
was started again in between. Of a topic no counter is told, but where its subscribers stand: one that stood at
`log.4` with 6 waiting and stands at `log.9` with 11 has taken 5 while 10 were put. Without subscribers, messages are
only added, and their number says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

SECONDS_MIN: Final = 0.5
"""Two reports of a process that lie closer together make no rate; the one before stays what is compared with."""

Facts = Mapping[str, Any]


class Rate(NamedTuple):
    """Messages a second.

    Attributes:
        puts: that were put.
        deliveries: of a server: handed out, repeats included; of a topic: taken by its subscribers, all together.
    """

    puts: float
    deliveries: float


class Rates:
    """The rates of the last two reports.

    Attributes:
        servers: by ID; one that was started again, or has told nothing twice, has none.
        topics: by name; of one that several servers hold, the sum.
    """

    def __init__(self) -> None:
        self.servers: dict[str, Rate] = {}
        self.topics: dict[str, Rate] = {}
        self._before: dict[str, Facts] = {}
        self._of: dict[str, dict[str, Rate]] = {}

    def add(self, report: Facts) -> None:
        """Take one more report.

        Args:
            report: of the cluster, as `pubsub status --json` prints it.
        """
        heard = {one["id"]: one["report"] for one in report["servers"] if one["report"] is not None}
        for server, now in heard.items():
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
            for server in [name for name in known if name not in heard]:
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
        if not offset or not stood or log != other:  # Another log by now: what waits no more was taken.
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
