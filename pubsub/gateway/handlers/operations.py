"""What operators may have done over HTTP: topics moved, subscriptions ended, servers drained.

How it is done is given to the gateway (`pubsub.cli` composes it), and is what the commands do. It takes its time, on a
thread: OPERATIONS_MAX at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from starlette.responses import Response

from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.problems import Problem
from pubsub.protocol import check_id, check_topic

OPERATIONS_MAX: Final = 4


class Operations(Protocol):
    """What can be done to a cluster; each call returns when it is done, and raises as the command of its name."""

    def move(self, topic: str, to: str) -> dict[str, Any]:
        """Move a topic to another server: `topic`, `from`, `to`, `moved`."""

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        """End a client's subscription: `topic`, `client`, `given_up`."""

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        """Give a server no more topics and move those it has, or let it take some again: `server`, `draining`."""


class Operating:
    """Requests of operators.

    Args:
        operations: does it.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._running = 0

    async def _run(self, exchange: Exchange, function: Callable[[], dict[str, Any]]) -> Response:
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token has no right to operate.")
        if self._running >= OPERATIONS_MAX:
            raise Problem("busy", f"{OPERATIONS_MAX} operations are under way already.")
        exchange.check(lambda user: user.operate)
        self._running += 1
        try:
            return answer(await asyncio.to_thread(function))
        finally:
            self._running -= 1

    async def move(self, exchange: Exchange) -> Response:
        """Move a topic."""
        topic, facts = check_topic(exchange.topic), await exchange.json()
        if not isinstance(facts, dict) or facts.keys() != {"to"} or not isinstance(facts["to"], str):
            raise Problem("bad-request", 'The body is {"to": "SERVER"}.')
        to = check_id("server ID", facts["to"])
        return await self._run(exchange, lambda: self._operations.move(topic, to))

    async def unsubscribe(self, exchange: Exchange) -> Response:
        """End a client's subscription."""
        topic, client = check_topic(exchange.topic), check_id("client ID", exchange.names["client"])
        return await self._run(exchange, lambda: self._operations.unsubscribe(topic, client))

    async def drain(self, exchange: Exchange) -> Response:
        """Drain a server."""
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=False))

    async def stop_draining(self, exchange: Exchange) -> Response:
        """Let a server take topics again."""
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=True))
