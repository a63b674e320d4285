"""The page: its files, and its live data as server-sent events (docs/http.md, *The page*)."""

from __future__ import annotations

import asyncio
import json
import time
from importlib.resources import files
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pubsub.errors import PubsubError
from pubsub.gateway.exchange import Exchange
from pubsub.gateway.history import SAMPLE_SECONDS, History
from pubsub.gateway.problems import Problem
from pubsub.gateway.reports import Reports
from pubsub.monitoring.rows import on_the_way, proxy_row, server_row
from pubsub.web.tokens import User

LIVE_SECONDS: Final = 2.0
"""Time between two updates of the page."""

MOVING_MAX: Final = 50
"""Topics in transfer or merge that the page shows."""

WARNINGS_MAX: Final = 50
"""Warnings that the page shows, and as many alarms; one more line counts the others."""

VIEWERS_MAX: Final = 100
"""Open pages at the same time."""

FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("page", "asking", "draw", "overview", "topic", "groups", "settings", "objects", "back", "table")
    },
}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Page:
    """Handlers of the page.

    Args:
        reports: of the cluster.
        stopping: set when the gateway stops.
    """

    def __init__(self, reports: Reports, stopping: asyncio.Event) -> None:
        self._reports, self._stopping = reports, stopping
        self.history = History()
        self._viewers = 0
        place = files("pubsub.gateway") / "page"
        self._files = {path: ((place / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}

    async def file(self, exchange: Exchange) -> Response:
        body, kind = self._files[exchange.request.scope["path"]]
        return Response(body, 200, _HEADERS, kind)

    async def live(self, exchange: Exchange) -> Response:
        if not exchange.user.status:
            raise Problem("not-allowed", "This token lacks the right status.")
        if self._viewers >= VIEWERS_MAX:
            raise Problem("busy", f"{VIEWERS_MAX} pages are open, which is the limit; close one.")
        return _Live(self, exchange)

    async def sample(self) -> None:
        while True:
            try:
                self.history.add(await self._reports.get(), time.time(), time.monotonic())
            except PubsubError:  # No proxy answers: the history has a gap.
                self.history.miss(time.time())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def send(self, exchange: Exchange, send: Send) -> None:
        """Send events until the viewer disconnects or loses the right, or the gateway stops."""
        head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        self._viewers += 1
        try:
            with exchange.lasting(lambda user: user.status) as lost:
                await self._send(exchange, send, lost)
        finally:
            self._viewers -= 1

    async def _send(self, exchange: Exchange, send: Send, lost: asyncio.Event) -> None:
        ends = [asyncio.ensure_future(wait) for wait in (exchange.gone(), self._stopping.wait(), lost.wait())]
        behind = 0  # The first event has the whole hour, later ones only new samples.
        try:
            while not any(end.done() for end in ends):
                facts = await self._facts(exchange.user)
                if lost.is_set():
                    break
                facts["history"] = self.history.facts(behind)
                behind = self.history.count
                event = b"data: " + json.dumps(facts).encode() + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": True})
                await asyncio.wait(ends, timeout=LIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _facts(self, user: User) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "user": user.name,
            "operate": user.operate,
            "problem": "",
        }
        try:
            report = await self._reports.get()
        except PubsubError as error:
            return facts | {
                "problem": str(error),
                "proxies": [],
                "servers": [],
                "warnings": [],
                "alarms": [],
                "moving": [],
                "standbys": [],
                "topics": None,
            }
        return facts | {
            "proxies": [proxy_row(proxy) for proxy in report["proxies"]],
            "servers": [
                server_row(server, self._reports.rates.servers.get(server["id"])) for server in report["servers"]
            ],
            "warnings": _first(report["warnings"], "warnings"),
            "alarms": _first(report["alarms"], "alarms"),
            "moving": on_the_way(report)[:MOVING_MAX],
            "standbys": report["standbys"],
            "topics": len(report["topics"]),
        }


def _first(sentences: list[str], what: str) -> list[str]:
    """Return the first WARNINGS_MAX sentences, and one that counts the others."""
    more = len(sentences) - WARNINGS_MAX
    return sentences if more <= 0 else [*sentences[:WARNINGS_MAX], f"and {more:,} more {what}; see pubsub status"]


class _Live(Response):
    def __init__(self, page: Page, exchange: Exchange) -> None:
        super().__init__()
        self._page, self._exchange = page, exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._page.send(self._exchange, send)
