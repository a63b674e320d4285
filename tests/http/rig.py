"""A receiver on a real port, within the test's own event loop; and clocks that are set by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pubsub.http import AsyncReliableHttp, HttpSettings, Receiver
from pubsub.http.serving import listen, make_server
from pubsub.web.serving import Tls

QUICK = HttpSettings(backoff_seconds=0.02, backoff_seconds_max=0.2, try_seconds=5.0)
PATIENCE_SECONDS = 120.0


class Clock:
    """Clocks that a test sets; the uptime goes on by itself."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.wall_seconds = 1.7e9
        self.boot_id = "boot"

    def uptime(self) -> float:
        return time.monotonic() + self.ahead

    def wall(self) -> float:
        return self.wall_seconds

    def boot(self) -> str:
        return self.boot_id


@asynccontextmanager
async def serving(app: Any, tls: Tls | None = None, port: int = 0) -> AsyncIterator[str]:
    """An application that is served; its URL."""
    server = make_server(app, listen(f"127.0.0.1:{port}", insecure=False), tls)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def both(tmp_path: Path, receiver: Receiver, **options: Any) -> AsyncIterator[tuple[AsyncReliableHttp, str]]:
    """A sender, and the URL of a receiver."""
    async with serving(receiver) as url, AsyncReliableHttp(tmp_path / "sender", settings=QUICK, **options) as http:
        yield http, url


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll a condition with a deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)
    return found


def counting(receiver: Receiver) -> Receiver:
    """A receiver whose handlers count: `/put`, `/message`, `/job`; each body is a row of `effects`."""

    @receiver.prepare
    def prepare(transaction: Any) -> None:
        transaction.execute("create table if not exists effects (key text, body blob)")

    def effect(request: Any, transaction: Any) -> dict[str, Any]:
        transaction.execute("insert into effects values (?, ?)", (request.key, request.body))
        return {"count": transaction.execute("select count(*) from effects").get}

    for route in (receiver.put("/put"), receiver.message("/message"), receiver.job("/job")):
        route(effect)
    return receiver


def effects(receiver: Receiver) -> list[bytes]:
    """What the handlers of `counting` did."""
    with receiver._journal.transaction() as transaction:
        return [bytes(body) for (body,) in transaction.execute("select body from effects order by rowid")]
