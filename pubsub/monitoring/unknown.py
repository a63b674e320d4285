"""Topics with unknown figures, because their server does not answer: the figures are null, not zero.

Such a topic has null for each figure, `unknown_seconds` (the time since the server's last sign of life) and
`last_known` (its last known figures). These come from a proxy's memory or from an earlier report in the same program,
the later of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pubsub.monitoring import retained

FIGURES: Final = ("records", "bytes", "backlog", "oldest_unacknowledged_seconds")
"""Figures that are added over servers, or of which the highest counts."""

SUMS: Final = ("records", "bytes", "backlog")

Facts = Mapping[str, Any]


class SilentServers:
    """The servers without a report, as the proxies describe them.

    Args:
        proxies: address -> its report, or the reason why there is none.
        servers: ID -> its report, or the reason why there is none.
    """

    def __init__(self, proxies: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
        self._servers = servers
        self.seconds: dict[str, float] = {}
        """Time since any proxy last received a message from the server, by ID."""
        self._last: dict[str, Facts] = {}
        for report in proxies.values():
            for row in report["servers"] if isinstance(report, dict) else ():
                if not isinstance(servers.get(row["id"]), dict):
                    self._note(row)

    def _note(self, row: Facts) -> None:
        name, gone = row["id"], row.get("gone_seconds")
        passed = row.get("silence_seconds") if gone is None else gone
        if passed is not None:
            self.seconds[name] = min(passed, self.seconds.get(name, passed))
        last, known = row.get("last_report"), self._last.get(name)
        if last is not None and (known is None or last["seconds_ago"] < known["seconds_ago"]):
            self._last[name] = last

    def knows(self, holder: Facts) -> bool:
        """Return whether the report contains the holder of a topic: the same store, not another under the same ID."""
        report = self._servers.get(holder["server"])
        if not isinstance(report, dict):
            return False
        stores = holder.get("store"), report.get("store")
        return None in stores or stores[0] == stores[1]

    def standby(self, server: str) -> Facts:
        """Return the last known state of a server's members, empty if unknown."""
        return (self._last.get(server) or {}).get("standby") or {}

    def figures(self, server: str, topic: str) -> Facts | None:
        """Return a topic's figures in a server's last report, with `seconds_ago`; None if there are none."""
        last = self._last.get(server)
        held = None if last is None else last["topics"].get(topic)
        return None if last is None or held is None else {**held, "seconds_ago": last["seconds_ago"]}

    def summary(self, server: str) -> dict[str, Any] | None:
        """Return the numbers of topics and records in a server's last report; None if there is none."""
        last = self._last.get(server)
        if last is None:
            return None
        records = sum(held["records"] or 0 for held in last["topics"].values())
        return {"seconds_ago": last["seconds_ago"], "topics": len(last["topics"]), "records": records}


def make_unknown(topic: dict[str, Any], servers: Sequence[str], silent_servers: SilentServers) -> None:
    """Remove the figures of a topic if one of its holders has not reported.

    Args:
        topic: of the report; its figures are sums over the servers that have reported. It is changed.
        servers: IDs of the holders without a report.
        silent_servers: the state of those servers.
    """
    since = [silent_servers.seconds[server] for server in servers if server in silent_servers.seconds]
    last = [silent_servers.figures(server, topic["topic"]) for server in servers]
    known: dict[str, Any] | None = None
    if all(one is not None for one in last):
        rows = [one for one in last if one is not None]
        known = {name: topic[name] + sum(row[name] or 0 for row in rows) for name in SUMS}
        ages = [row["oldest_unacknowledged_seconds"] for row in rows]
        known["oldest_unacknowledged_seconds"] = max((age for age in ages if age is not None), default=None)
        known["subscribers"] = max([len(topic["subscribers"]), *(row["subscribers"] or 0 for row in rows)])
        known["seconds_ago"] = max(row["seconds_ago"] for row in rows)
    if topic["sole_owner"]:
        topic["sole_owner"] = topic["whole"] = None
    topic |= dict.fromkeys((*FIGURES, "subscribers", "held_by")) | retained.unknown()
    topic["unknown_seconds"] = max(since, default=0.0)
    topic["last_known"] = known


def figures_of(topic: Facts) -> dict[str, Any]:
    """Return the figures of a known topic in the form of `last_known`, without `seconds_ago`."""
    return {name: topic[name] for name in FIGURES} | {"subscribers": len(topic["subscribers"])}


class Memory:
    """The last figures of each topic that one program has seen."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def add(self, report: Facts, now: float) -> None:
        """Add a report. An unknown topic gets the later of its own `last_known` and ours.

        Args:
            report: of the cluster; it is changed.
            now: the monotonic clock, in seconds.
        """
        kept: dict[str, tuple[float, dict[str, Any]]] = {}
        for topic in report["topics"]:
            name = topic["topic"]
            if topic.get("unknown_seconds") is None:
                kept[name] = now, figures_of(topic)
                continue
            known = self._known.get(name)
            if known is None:
                continue
            kept[name] = known
            ago, told = round(now - known[0], 1), topic["last_known"]
            if told is None or ago < told["seconds_ago"]:
                topic["last_known"] = known[1] | {"seconds_ago": ago}
        self._known = kept


def unknown_topics(topics: Iterable[Facts]) -> list[dict[str, Any]]:
    """Return the topics with unknown figures; while there is one, sums over topics are incomplete."""
    return [dict(topic) for topic in topics if topic.get("unknown_seconds") is not None]
