"""The page: its files, and what it shows live, as server-sent events (docs/http.md, *The page*)."""

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
"""What the page shows is sent anew so often."""

MOVING_MAX: Final = 50
"""Topics on their way that the page shows."""

WARNINGS_MAX: Final = 50
"""Warnings that the page shows, and alarms; one more line counts the others."""

VIEWERS_MAX: Final = 100
"""Pages that are looked at at the same time."""

FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in ("page", "asking", "draw", "overview", "topic")},
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
    """Requests of the page.

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
        """One of the page's files."""
        body, kind = self._files[exchange.request.scope["path"]]
        return Response(body, 200, _HEADERS, kind)

    async def live(self, exchange: Exchange) -> Response:
        """The cluster as it is, again and again."""
        if not exchange.user.status:
            raise Problem("not-allowed", "This token has no right to the cluster's status.")
        if self._viewers >= VIEWERS_MAX:
            raise Problem("busy", f"{VIEWERS_MAX} pages are looked at already.")
        return _Live(self, exchange)

    async def sample(self) -> None:
        """Keep the history, without end."""
        while True:
            try:
                self.history.add(await self._reports.get(), time.time(), time.monotonic())
            except PubsubError:  # Nobody answers: the history has a gap there.
                self.history.miss(time.time())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def send(self, exchange: Exchange, send: Send) -> None:
        """Send events until whoever looks is gone or may look no longer, or the gateway stops."""
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
        behind = 0  # The hour goes out once, then what is new.
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
    """So many of them, and how many more there are."""
    more = len(sentences) - WARNINGS_MAX
    return sentences if more <= 0 else [*sentences[:WARNINGS_MAX], f"and {more:,} more {what}: pubsub status"]


class _Live(Response):
    """The answer that goes on."""

    def __init__(self, page: Page, exchange: Exchange) -> None:
        super().__init__()
        self._page, self._exchange = page, exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await self._page.send(self._exchange, send)
