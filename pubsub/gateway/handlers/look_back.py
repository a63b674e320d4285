"""`/topics/{topic}/records` and `/times`, and moving a subscriber to a start (docs/how-to/look-back.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from starlette.responses import Response

from pubsub.client.starts import describe, parse_start_text, parse_stop_text
from pubsub.gateway import schemas
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.handlers.tables import TableReads
from pubsub.gateway.limits import PEEKS_MAX, POLL_RECORDS, POLL_RECORDS_MAX
from pubsub.gateway.mailbox import Mailbox
from pubsub.gateway.problems import Problem
from pubsub.gateway.readers import Readers
from pubsub.gateway.registry import Registry, Subscriber
from pubsub.protocol import check_id, check_topic
from pubsub.protocol.names import Start
from pubsub.protocol.patterns import is_pattern

START: Final = "start"


class Reads(TableReads, Protocol):
    """Reads of the cluster for a user; each blocks, and raises as the command of its name."""

    def records(self, user: str, topic: str, start: Start, stop: Start, after: str, most: int) -> dict[str, Any]:
        """Return a page of messages: `messages`, each as `Mail`, and `next`, or None at the end."""

    def times(self, user: str, topic: str) -> dict[str, Any]:
        """Return the fields of `TopicTimes` as JSON."""


class LookingBack:
    """Handlers that read from a start, and move subscribers.

    Args:
        registry, clients, readers: as for `Subscribers`.
        reads: reads the cluster.
    """

    def __init__(self, registry: Registry, clients: Clients, readers: Readers, reads: Reads) -> None:
        self._registry, self._clients, self._readers, self._reads = registry, clients, readers, reads
        self._running = 0

    async def records(self, exchange: Exchange) -> Response:
        """Return stored messages from a start on, by page. No subscriber's position changes."""
        topic, query, now = self.readable(exchange), exchange.request.query_params, time.time()
        start = parse_start_text(query.get(START, "earliest"), now)
        stop = parse_stop_text(query.get("stop"), now)
        most = exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        user, after = exchange.user.name, query.get("after", "")
        facts = await self.run(lambda: self._reads.records(user, topic, start, stop, after, most))
        messages = [mail.facts() for mail in facts["messages"]]
        return answer(schemas.Records(topic, messages, facts["next"]))

    async def times(self, exchange: Exchange) -> Response:
        """Return how far the topic can be looked back into."""
        topic, user = self.readable(exchange), exchange.user.name
        return answer(schemas.Times(**await self.run(lambda: self._reads.times(user, topic))))

    async def seek(self, exchange: Exchange) -> Response:
        """Move a subscriber of the user to a start."""
        topic = self.readable(exchange)
        name = exchange.names["subscriber"]
        one = self._registry.find(exchange.user.name, topic, name)
        if one is None:
            raise Problem("not-subscribed", f"{topic} has no subscriber {name}; PUT it first.")
        return await self._seek(exchange, one)

    async def seek_client(self, exchange: Exchange) -> Response:
        """Move a subscriber of any user of this gateway, for an operator."""
        topic, client = check_topic(exchange.topic), check_id("client ID", exchange.names["client"])
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
        found = [one for one in self._registry.all() if one.topic == topic and one.client == client]
        if not found:
            text = (
                f"{client} is no subscriber of this gateway; its own program or pubsub client {client} seek moves it."
            )
            raise Problem("not-subscribed", text)
        return await self._seek(exchange, found[0])

    async def _seek(self, exchange: Exchange, one: Subscriber) -> Response:
        wanted = await exchange.json()
        if not isinstance(wanted, dict) or wanted.keys() != {START} or not isinstance(wanted[START], str):
            raise Problem("bad-request", 'The body is not valid; send {"start": "-1h"}, or another start.')
        if is_pattern(one.topic):
            text = f"{one.topic} is a pattern, which has no place to move; PUT {one.name} with fresh=true and a start."
            raise Problem("conflict", text)
        if one.webhook is not None:
            raise Problem("conflict", f"{one.name} is a webhook, which cannot be moved; read the records instead.")
        start = parse_start_text(wanted[START], time.time())
        await self._readers.send_away(one.key)
        async with self._readers.reading(one.key), self._clients.subscriber(one.user, one.client) as client:
            replay = await client.seek_with(one.topic, start, Mailbox(client, one.topic).clear)
        return answer(schemas.Sought(one.topic, one.client, describe(start), replay))

    def readable(self, exchange: Exchange) -> str:
        """Return the topic of a request; raise Problem if the user may not get from it."""
        topic = check_topic(exchange.topic)
        if not exchange.user.may_get(topic):
            raise Problem("not-allowed", f"This token may not receive {topic}; it needs the right get.")
        return topic

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function that reads on a thread; raise Problem if too many run already."""
        if self._running >= PEEKS_MAX:
            raise Problem("busy", f"{PEEKS_MAX} requests are reading messages, which is the limit; try again.")
        self._running += 1
        try:
            return await asyncio.to_thread(function)
        finally:
            self._running -= 1


def start_of(exchange: Exchange) -> Start | None:
    """Return the start in the query of a subscribe; None: it has none.

    Raises:
        CallerError: it is not valid.
    """
    text = exchange.request.query_params.get(START)
    return None if text is None else parse_start_text(text, time.time())


__all__ = ["LookingBack", "Reads", "start_of"]
