"""Requests of operators: move a topic, end a subscription, drain a server.

The caller of the gateway passes the functions (`pubsub.cli` composes them); they are the same as those of the commands.
They take time, so each runs on a thread, OPERATIONS_MAX at once.
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
    """Operations on a cluster. Each call returns when it is complete, and raises as the command of the same name."""

    def move(self, topic: str, to: str) -> dict[str, Any]:
        """Move a topic to another server: `topic`, `from`, `to`, `moved`."""

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        """End a client's subscription: `topic`, `client`, `given_up`."""

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        """Move a server's topics away and assign no new ones to it, or undo this: `server`, `draining`."""


class Operating:
    """Handlers for operators.

    Args:
        operations: carries out the requests.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._running = 0

    async def _run(self, exchange: Exchange, function: Callable[[], dict[str, Any]]) -> Response:
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
        if self._running >= OPERATIONS_MAX:
            raise Problem("busy", f"{OPERATIONS_MAX} operations are running, which is the limit; try again.")
        exchange.check(lambda user: user.operate)
        self._running += 1
        try:
            return answer(await asyncio.to_thread(function))
        finally:
            self._running -= 1

    async def move(self, exchange: Exchange) -> Response:
        topic, facts = check_topic(exchange.topic), await exchange.json()
        if not isinstance(facts, dict) or facts.keys() != {"to"} or not isinstance(facts["to"], str):
            raise Problem("bad-request", 'The body is not valid; send {"to": "SERVER"}.')
        to = check_id("server ID", facts["to"])
        return await self._run(exchange, lambda: self._operations.move(topic, to))

    async def unsubscribe(self, exchange: Exchange) -> Response:
        topic, client = check_topic(exchange.topic), check_id("client ID", exchange.names["client"])
        return await self._run(exchange, lambda: self._operations.unsubscribe(topic, client))

    async def drain(self, exchange: Exchange) -> Response:
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=False))

    async def stop_draining(self, exchange: Exchange) -> Response:
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=True))
