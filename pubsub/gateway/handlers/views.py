"""The cluster as JSON, the metrics, and the health checks."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from heapq import nsmallest
from typing import Any, Final

from starlette.responses import Response

from pubsub.errors import PubsubError
from pubsub.gateway import schemas
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.metrics import MEDIA_TYPE, Facts, Requests, exposition
from pubsub.gateway.problems import Problem, body
from pubsub.gateway.reports import Reports
from pubsub.monitoring.rows import SORTS, topic_row, topic_rows
from pubsub.protocol.patterns import matches
from pubsub.web.problems import MEDIA_TYPE as PROBLEM

PAGE = 100
PAGE_MAX = 10_000
SUBSCRIBERS_MAX = 1_000_000
"""Default number of subscribers listed for a topic: all that a report has."""

Numbers = Callable[[], tuple[dict[str, tuple[float, str]], dict[str, tuple[float, str]]]]
"""Returns the gateway's own counters and gauges: name -> (value, help text)."""


class Views:
    """Read-only handlers.

    Args:
        reports: of the cluster.
        requests: counts requests.
        numbers: of the gateway.
        stopping: set when the gateway stops.
    """

    def __init__(self, reports: Reports, requests: Requests, numbers: Numbers, stopping: asyncio.Event) -> None:
        self._reports, self._requests, self._numbers, self._stopping = reports, requests, numbers, stopping
        self._writing = asyncio.Lock()

    async def _report(self, exchange: Exchange) -> dict[str, Any]:
        if not exchange.user.status:
            raise Problem("not-allowed", "This token lacks the right status.")
        return await self._reports.get()

    async def topics(self, exchange: Exchange) -> Response:
        """Return a page of topics, by name or the largest first."""
        found = (await self._report(exchange))["topics"]
        query = exchange.request.query_params
        wanted, after, sort = query.get("search", ""), query.get("after", ""), query.get("sort", "topic")
        most = exchange.count("max", PAGE, PAGE_MAX)
        named = int(exchange.number("subscribers", SUBSCRIBERS_MAX, SUBSCRIBERS_MAX))
        if sort not in SORTS:
            raise Problem("bad-request", f"sort must be one of {', '.join(SORTS)}.")
        if wanted:
            found = [topic for topic in found if wanted in topic["topic"]]
        if sort == "topic":
            start = bisect_right(found, after, key=lambda topic: topic["topic"]) if after else 0
            page = [self._rated(topic) for topic in found[start : start + most]]
        else:
            rows = await asyncio.to_thread(topic_rows, found, self._reports.rates, sort)
            # The order may have changed since the previous page; if the topic is gone, the list begins again.
            start = next((place for place, row in enumerate(rows, 1) if row["topic"] == after), 0) if after else 0
            page = rows[start : start + most]
        following = page[-1]["topic"] if page and start + most < len(found) else None
        return answer(schemas.Topics([_topic(row, named) for row in page], len(found), following))

    async def topic(self, exchange: Exchange) -> Response:
        found = (await self._report(exchange))["topics"]
        named = int(exchange.number("subscribers", SUBSCRIBERS_MAX, SUBSCRIBERS_MAX))
        place = bisect_left(found, exchange.topic, key=lambda topic: topic["topic"])
        if place == len(found) or found[place]["topic"] != exchange.topic:
            raise Problem("not-found", f"No server holds the topic {exchange.topic}; put to it or subscribe first.")
        return answer(_topic(self._rated(found[place]), named))

    async def patterns(self, exchange: Exchange) -> Response:
        """Return the subscriptions to patterns, or with `topic` those that match it."""
        topic = exchange.request.query_params.get("topic")
        rows = (await self._report(exchange))["patterns"]
        found = [row for row in rows if topic is None or matches(row["pattern"], topic)]
        families = [schemas.Family(row["subscriber"], row["pattern"], row["stamp"]) for row in found]
        return answer(schemas.Families(families))

    def _rated(self, topic: dict[str, Any]) -> dict[str, Any]:
        return topic_row(topic, self._reports.rates.topics.get(topic["topic"]))

    async def servers(self, exchange: Exchange) -> Response:
        report = await self._report(exchange)
        return answer(schemas.Servers(report["servers"], report["standbys"], report["warnings"]))

    async def proxies(self, exchange: Exchange) -> Response:
        report = await self._report(exchange)
        return answer(schemas.Proxies(report["proxies"], report["warnings"]))

    async def metrics(self, exchange: Exchange) -> Response:
        if not exchange.user.status:
            raise Problem("not-allowed", "This token lacks the right status.")
        try:
            report: dict[str, Any] | None = await self._reports.get()
        except PubsubError:
            report = None
        async with self._writing:  # One at a time, on a thread: ten thousand topics take a while.
            facts = Facts(*self._numbers(), report)
            text = await asyncio.to_thread(exposition, self._requests, facts)
        return Response(text, 200, None, MEDIA_TYPE)

    async def live(self, exchange: Exchange) -> Response:
        """Answer 200 while the process serves."""
        return answer(schemas.Alive(alive=True))

    async def ready(self, exchange: Exchange) -> Response:
        """Answer 200 while the gateway is not stopping and a proxy answers."""
        if self._stopping.is_set():
            raise Problem("stopping", "The gateway is stopping.")
        reason = await self._reports.problem()
        if reason:
            return Response(body("unavailable", f"{reason}."), 503, None, PROBLEM)
        return answer(schemas.Ready(ready=True))


_DELAYED: Final = {"delayed", "delayed_bytes", "overdue_seconds"}
"""Fields that only a topic with delayed messages has, so that a page of many topics stays small."""


def _topic(topic: dict[str, Any], named: int) -> Any:
    """Return a `schemas.Topic` with at most `named` subscribers: all by name, or the slowest first."""
    if not topic["delayed"]:
        topic = {name: value for name, value in topic.items() if name not in _DELAYED}
    if topic["subscribers"] is None:
        return topic | {"subscribers_total": None}
    names = sorted(topic["subscribers"])
    if named < len(names):
        names = nsmallest(named, names, key=lambda name: (-topic["subscribers"][name]["waiting"], name))
    subscribers = [{"client": name, **topic["subscribers"][name]} for name in names]
    return topic | {"subscribers": subscribers, "subscribers_total": len(topic["subscribers"])}
