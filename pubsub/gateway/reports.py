"""The cluster's report, requested at most once a second by all callers together, and less often if it is large.

A server builds its report between two turns of its loop, and does nothing else meanwhile. A report of many topics is
therefore reused for longer, so that it takes only a small part of the server's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from pubsub.errors import PubsubError
from pubsub.gateway.limits import REPORT_SECONDS, REPORT_TOPICS_PER_SECOND
from pubsub.monitoring.rates import Rates
from pubsub.monitoring.unknown import Memory

Gather = Callable[[], dict[str, Any]]
"""Asks every proxy and server, and returns one report: `proxies`, `servers`, `topics`, `warnings` and more."""


class Reports:
    """The last report.

    Args:
        gather: asks the cluster; it blocks, and runs on a thread.

    Attributes:
        rates: from the last two reports.
    """

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self.rates = Rates()
        self._memory = Memory()
        self._until = float("-inf")
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._last: dict[str, Any] = {}

    async def get(self) -> dict[str, Any]:
        """Return the report: at most REPORT_SECONDS old, or one second for each REPORT_TOPICS_PER_SECOND topics.

        Raises:
            PubsubError: no proxy answers, or the gateway lacks the right.
        """
        if monotonic() < self._until:
            return self._last
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._ask))
        asking = self._asking
        self._last = await asyncio.shield(asking)
        self._until = monotonic() + max(REPORT_SECONDS, len(self._last["topics"]) / REPORT_TOPICS_PER_SECOND)
        return self._last

    def _ask(self) -> dict[str, Any]:
        found = self._gather()
        self.rates.add(found)
        self._memory.add(found, monotonic())
        return found

    async def problem(self) -> str:
        """Return the reason why there is no report, "" if there is one."""
        try:
            await self.get()
        except PubsubError as error:
            return str(error)
        return ""
