"""Topics of which no figures are known, because their server does not answer: not zero, but unknown.

Such a topic has null for each figure, `unknown_seconds`, which says since when, and `last_known`, which says how it was
before: as a proxy remembers it, or as the same program saw it at an earlier look, the later one of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

FIGURES: Final = ("records", "bytes", "backlog", "oldest_unacknowledged_seconds")
"""That add up, or of which the highest counts."""

SUMS: Final = ("records", "bytes", "backlog")

Facts = Mapping[str, Any]


class Unheard:
    """The servers that gave no report, as the proxies speak of them.

    Args:
        proxies: address -> its report, or why there is none.
        servers: ID -> its report, or why there is none.
    """

    def __init__(self, proxies: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
        self._servers = servers
        self.seconds: dict[str, float] = {}
        """Since when no proxy hears one, by ID."""
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
        """Whether the server that holds a topic has told of it: its very store, not another one under its name."""
        report = self._servers.get(holder["server"])
        if not isinstance(report, dict):
            return False
        stores = holder.get("store"), report.get("store")
        return None in stores or stores[0] == stores[1]

    def standby(self, server: str) -> Facts:
        """What a server told of its members last; nothing where it is not known."""
        return (self._last.get(server) or {}).get("standby") or {}

    def figures(self, server: str, topic: str) -> Facts | None:
        """The figures of a topic in a server's last report, with `seconds_ago`; None where there are none."""
        last = self._last.get(server)
        held = None if last is None else last["topics"].get(topic)
        return None if last is None or held is None else {**held, "seconds_ago": last["seconds_ago"]}

    def summary(self, server: str) -> dict[str, Any] | None:
        """How many topics and records a server had in its last report; None where there is none."""
        last = self._last.get(server)
        if last is None:
            return None
        records = sum(held["records"] or 0 for held in last["topics"].values())
        return {"seconds_ago": last["seconds_ago"], "topics": len(last["topics"]), "records": records}


def make_unknown(topic: dict[str, Any], servers: Sequence[str], unheard: Unheard) -> None:
    """Take back the figures of a topic that these servers hold, alone or with others, and have told nothing of.

    Args:
        topic: as the report has it; its figures are those of the servers that have told.
        servers: IDs of the others.
        unheard: what is known of them.
    """
    since = [unheard.seconds[server] for server in servers if server in unheard.seconds]
    last = [unheard.figures(server, topic["topic"]) for server in servers]
    known: dict[str, Any] | None = None
    if all(one is not None for one in last):
        rows = [one for one in last if one is not None]
        known = {name: topic[name] + sum(row[name] or 0 for row in rows) for name in SUMS}
        ages = [row["oldest_unacknowledged_seconds"] for row in rows]
        known["oldest_unacknowledged_seconds"] = max((age for age in ages if age is not None), default=None)
        known["subscribers"] = max([len(topic["subscribers"]), *(row["subscribers"] or 0 for row in rows)])
        known["seconds_ago"] = max(row["seconds_ago"] for row in rows)
    if topic["whole"]:
        topic["whole"] = None
    topic |= dict.fromkeys((*FIGURES, "subscribers", "held_by"))
    topic["unknown_seconds"] = max(since, default=0.0)
    topic["last_known"] = known


def figures_of(topic: Facts) -> dict[str, Any]:
    """The figures of a topic that is known, as `last_known` has them, but for `seconds_ago`."""
    return {name: topic[name] for name in FIGURES} | {"subscribers": len(topic["subscribers"])}


class Memory:
    """What the looks of one program have shown of each topic."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def add(self, report: Facts, now: float) -> None:
        """Take one more report; what is unknown in it gets the later one of its own `last_known` and ours.

        Args:
            report: of the cluster; changed.
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
    """The topics of which nothing is known; while there is one, sums over topics say nothing."""
    return [dict(topic) for topic in topics if topic.get("unknown_seconds") is not None]
