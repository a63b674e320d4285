"""`/topics/{topic}/subscribers/…` and `/topics/{topic}/stream`: subscribing and receiving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pubsub.client.flows.families import stamp_of
from pubsub.errors import NotSubscribed
from pubsub.gateway import losses, schemas
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, answer, nothing
from pubsub.gateway.handlers.look_back import start_of
from pubsub.gateway.limits import POLL_RECORDS, POLL_RECORDS_MAX, WAIT_SECONDS_MAX
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.polling import confirm, confirmation, next_batch
from pubsub.gateway.problems import Problem
from pubsub.gateway.readers import Readers
from pubsub.gateway.registry import Registry, Subscriber
from pubsub.gateway.sessions import Needs
from pubsub.gateway.streaming import Stream, last_event_id, stream
from pubsub.gateway.webhooks.dead_letters import as_json
from pubsub.protocol import check_id
from pubsub.protocol.patterns import is_pattern


class Subscribers:
    """Handlers of subscriptions and reading.

    Args:
        registry: the subscribers.
        clients: their clients.
        readers: the requests that read at present.
        stopping: set when the gateway stops.

    Attributes:
        polled, streamed: messages delivered since the start.
    """

    def __init__(self, registry: Registry, clients: Clients, readers: Readers, stopping: asyncio.Event) -> None:
        self._registry, self._clients, self._readers, self._stopping = registry, clients, readers, stopping
        self.polled = self.streamed = 0

    def _wanted(self, exchange: Exchange, name: str) -> Subscriber:
        """Return the subscriber that a request names; it may not exist.

        Raises:
            Problem: the user may not receive the topic. InvalidName: a name is not valid.
        """
        if not exchange.user.may_get(exchange.topic):
            raise Problem("not-allowed", f"This token may not receive {exchange.topic}; it needs the right get.")
        one = Subscriber(exchange.user.name, exchange.subscribable, name)
        check_id("subscriber", one.client)
        return one

    def _found(self, exchange: Exchange, name: str) -> Subscriber:
        """As `_wanted`, for an existing subscriber that is not a webhook.

        Raises:
            Problem: there is none, or it is a webhook.
        """
        wanted = self._wanted(exchange, name)
        found = self._registry.find(*wanted.key)
        if found is None:
            raise Problem("not-subscribed", f"{exchange.topic} has no subscriber {name}; PUT it first.")
        if found.webhook is not None:
            raise Problem("conflict", f"{name} is a webhook, so its messages cannot be polled; use another name.")
        return found

    async def put(self, exchange: Exchange) -> Response:
        """Subscribe. A repeat checks whether the service still has the subscription.

        An existing subscription under this name continues. `fresh=true` drops its backlog. A new one begins at `start`,
        by default at the end.
        """
        name, fresh = exchange.names["subscriber"], exchange.truth("fresh")
        wanted, start = self._wanted(exchange, name), start_of(exchange)
        before = self._registry.find(*wanted.key)
        if before is not None and before.webhook is not None:
            raise Problem("conflict", f"{name} is a webhook of this topic; choose another name.")
        if is_pattern(wanted.topic):
            stamp_of(start)
        self._registry.check_apart(wanted)
        if before is None:
            self._registry.put(wanted)
        if fresh:
            await self._readers.send_away(wanted.key)
        reading = self._readers.reading(wanted.key) if fresh else contextlib.nullcontext()
        async with reading, self._clients.subscriber(wanted.user, wanted.client) as client:
            await client.subscribe_from(wanted.topic, start, fresh=fresh)
            if fresh:
                Mailbox(client, wanted.topic).empty()
        return answer(schemas.Subscribed(wanted.topic, name, wanted.client), 200 if before is not None else 201)

    async def get(self, exchange: Exchange) -> Response:
        one = self._found(exchange, exchange.names["subscriber"])
        async with self._clients.subscriber(one.user, one.client) as client:
            place, lost = Mailbox(client, one.topic).place(), losses.count(client, one.topic)
        opened = confirmation(one.topic, one.name, place.opened) if place.opened > place.confirmed else None
        taken, confirmed = place.last, place.confirmed
        return answer(schemas.Subscriber(one.topic, one.name, one.client, taken, confirmed, opened, lost))

    async def delete(self, exchange: Exchange) -> Response:
        """Unsubscribe and delete unconfirmed messages."""
        one = self._found(exchange, exchange.names["subscriber"])
        await self._readers.send_away(one.key)
        async with self._readers.reading(one.key), self._clients.subscriber(one.user, one.client) as client:
            with contextlib.suppress(NotSubscribed):
                await client.unsubscribe(one.topic)
            Mailbox(client, one.topic).empty()
            client.forget_losses(one.topic, lambda transaction: losses.forget(transaction, one.topic))
            self._registry.remove(one)
        return nothing()

    async def dead_letters(self, exchange: Exchange) -> Response:
        one = self._found(exchange, exchange.names["subscriber"])
        after = int(exchange.number("after", 0, 1 << 62))
        most = exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        beginnings = exchange.truth("beginnings")
        async with self._clients.subscriber(one.user, one.client) as client:
            rows, following = losses.page(client, one.topic, after, most)
        found = [as_json(Mail._make(row), beginnings=beginnings) for row in rows]
        return answer(schemas.DeadLetters(found, following))

    async def poll(self, exchange: Exchange) -> Response:
        one = self._found(exchange, exchange.names["subscriber"])
        most = exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        seconds = exchange.number("wait", 0.0, WAIT_SECONDS_MAX)
        async with self._readers.reading(one.key) as reader, self._clients.subscriber(one.user, one.client) as client:
            polling = asyncio.ensure_future(next_batch(Mailbox(client, one.topic), most, seconds))
            async with self._ends(exchange, reader.told) as ends:
                try:
                    await asyncio.wait([polling, *ends], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    polling.cancel()
                    await asyncio.gather(polling, return_exceptions=True)
            mail = [] if polling.cancelled() else polling.result()
        exchange.check(_receiving(exchange))
        if not mail:
            return nothing()
        self.polled += len(mail)
        return _batch(one, mail)

    async def confirm(self, exchange: Exchange) -> Response:
        one = self._found(exchange, exchange.names["subscriber"])
        text = exchange.names["batch"]
        if not text.isdecimal() or len(text) > 18:
            raise Problem("not-found", "This subscriber never had that batch; use confirm of a batch.")
        async with self._clients.subscriber(one.user, one.client) as client:
            await confirm(Mailbox(client, one.topic), int(text))
        return nothing()

    async def stream(self, exchange: Exchange) -> EventStream:
        name = exchange.request.query_params.get("subscriber", "")
        one = self._found(exchange, name)
        header = exchange.request.headers.get("last-event-id")
        return EventStream(self, exchange, one, last_event_id(header), take_over=header is not None)

    async def send_stream(self, stream_: EventStream, send: Send) -> None:
        """Send a stream until its reader disconnects, another reader takes over, or the gateway stops."""
        one, exchange = stream_.subscriber, stream_.exchange
        reading = self._readers.reading(one.key, take_over=stream_.take_over)
        async with reading as reader, self._clients.subscriber(one.user, one.client) as client:
            mailbox = Mailbox(client, one.topic)
            place = mailbox.place()
            if stream_.after > place.last:
                raise Problem("bad-request", "Last-Event-ID does not name an event of this stream.")
            if stream_.after > place.confirmed:
                await mailbox.confirm(stream_.after)
            async with self._ends(exchange, reader.told) as ends:
                events = Stream(mailbox, send)
                after = max(stream_.after, place.confirmed)
                why = await stream(events, after, ends, lambda: exchange.check(_receiving(exchange)))
                self.streamed += events.events
        await events.end(why)

    @asynccontextmanager
    async def _ends(self, exchange: Exchange, told: asyncio.Event) -> AsyncIterator[list[asyncio.Future[Any]]]:
        """Return the events that end a waiting request: disconnect, another reader, a lost right, the gateway's end."""
        with exchange.lasting(_receiving(exchange)) as lost:
            endings = exchange.gone(), told.wait(), self._stopping.wait(), lost.wait()
            waits = [asyncio.ensure_future(wait) for wait in endings]
            try:
                yield list(waits)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)


def _receiving(exchange: Exchange) -> Needs:
    return lambda user: user.may_get(exchange.topic)


class EventStream(Response):
    """A streaming response. An error before its first byte becomes an error response."""

    def __init__(
        self, handlers: Subscribers, exchange: Exchange, subscriber: Subscriber, after: int, *, take_over: bool
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self.exchange, self.subscriber, self.after, self.take_over = exchange, subscriber, after, take_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handlers.send_stream(self, send)


def _batch(one: Subscriber, mail: list[Mail]) -> Response:
    path = confirmation(one.topic, one.name, mail[-1].number)
    batch = schemas.Batch(one.topic, one.name, path, [found.facts() for found in mail])
    return answer(batch, 200, {"link": f'<{path}>; rel="confirm"', "cache-control": "no-store"})
