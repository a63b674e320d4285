"""The last report of each server, kept for the time when that server is silent.

A proxy asks its servers from time to time, and again when it is asked for its own report. So the figures from before an
outage are known even if no other process asked at that time. A report of ten thousand topics has megabytes, so it is
parsed only when its server is silent.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pubsub.protocol.batch import Buffer
from pubsub.proxy.replies import Replies
from pubsub.proxy.server import Server

CALLBACK: Final = 1 << 62
"""The callback of these questions. Marks of `in_flight` are numbers of bytes, far below it."""

SECONDS: Final = 10.0
"""Interval of the questions to one server."""

TOPICS_PER_SECOND: Final = 100
"""The interval is at least a second for this many topics, because a long report occupies the server's loop."""

FRESH_SECONDS: Final = 1.0
"""Age up to which a report is not requested again for an operator."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""A longer report is not kept, so its figures are unknown in an outage."""

TOTAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of all kept reports."""

_FIGURES: Final = ("records", "bytes", "backlog", "oldest_unacknowledged_seconds")


class _Kept:
    """One server's last report, its time, and the figures read from it."""

    __slots__ = ("at", "body", "facts")

    def __init__(self, body: bytes, at: float) -> None:
        self.body, self.at = body, at
        self.facts: dict[str, Any] | None = None


class LastReports:
    """The last report of each server.

    Attributes:
        asks: whether servers are asked at all.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.asks = False
        self._asked: dict[str, float] = {}
        self._kept: dict[str, _Kept] = {}

    def look(self, servers: list[Server], now: float, *, wanted: bool = False) -> None:
        """Ask the servers that have an old report.

        Args:
            servers: the servers that are alive.
            now: the monotonic clock, in seconds.
            wanted: whether an operator waits for a report of this proxy.
        """
        if not self.asks:
            return
        for server in servers:
            often = FRESH_SECONDS if wanted else SECONDS
            pause = max(often, len(server.topics) / TOPICS_PER_SECOND)
            asked = self._asked.setdefault(server.store, now if not wanted else float("-inf"))
            if now - asked >= pause:
                self._asked[server.store] = now
                self._replies.ask_report(server, CALLBACK, now)

    def take(self, server: Server, body: Buffer, now: float) -> None:
        """Keep a server's answer."""
        size = len(body)
        others = sum(len(kept.body) for store, kept in self._kept.items() if store != server.store)
        if size and size <= BYTES_MAX and others + size <= TOTAL_BYTES_MAX:
            self._kept[server.store] = _Kept(bytes(body), now)

    def forget(self, known: dict[str, Server]) -> None:
        """Drop the reports of stores that are not known any more."""
        for rows in (self._kept, self._asked):
            for store in [store for store in rows if store not in known]:
                del rows[store]

    def of(self, server: Server, now: float) -> dict[str, Any] | None:
        """Return the figures of a server's last report; None if there is none.

        Returns:
            `seconds_ago`, `standby` (as the server reported it, or null) and `topics`: by name, each with `records`,
            `bytes`, `backlog`, `oldest_unacknowledged_seconds` and the number of `subscribers`.
        """
        kept = self._kept.get(server.store)
        if kept is None:
            return None
        if kept.facts is None:
            kept.facts = _read(kept.body)
        return {"seconds_ago": round(now - kept.at, 1), **kept.facts}


def _read(body: bytes) -> dict[str, Any]:
    """Return the figures of a report; none if it cannot be read."""
    try:
        report = json.loads(body)
        topics = {
            str(name): {figure: held.get(figure) for figure in _FIGURES} | {"subscribers": len(held["subscribers"])}
            for name, held in report["topics"].items()
        }
        return {"standby": report.get("standby"), "topics": topics}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {"standby": None, "topics": {}}
