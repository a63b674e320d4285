"""`/topics/{topic}/webhooks/…`: webhooks, their dead letters, and redrive."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType
from starlette.responses import Response

from pubsub.base.urls import is_masked
from pubsub.errors import NotSubscribed
from pubsub.gateway import losses, schemas
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, answer, nothing
from pubsub.gateway.limits import POLL_RECORDS, POLL_RECORDS_MAX, WEBHOOK_SECRETS_MAX, WEBHOOK_URL_LENGTH_MAX
from pubsub.gateway.mailbox import Mailbox
from pubsub.gateway.problems import Problem
from pubsub.gateway.registry import ACTIVE, Registry, Subscriber, Webhook
from pubsub.gateway.webhooks import dead_letters
from pubsub.gateway.webhooks.dispatcher import Dispatcher
from pubsub.gateway.webhooks.signing import format_secret, parse_secret
from pubsub.protocol import check_id


class Webhooks:
    """Handlers of webhooks.

    Args:
        registry: the webhooks.
        clients: their clients.
        dispatcher: runs them.
    """

    def __init__(self, registry: Registry, clients: Clients, dispatcher: Dispatcher) -> None:
        self._registry, self._clients, self._dispatcher = registry, clients, dispatcher

    def _wanted(self, exchange: Exchange) -> Subscriber:
        if not exchange.user.may_get(exchange.topic):
            raise Problem("not-allowed", f"This token may not receive {exchange.topic}; it needs the right get.")
        one = Subscriber(exchange.user.name, exchange.subscribable, exchange.names.get("webhook", "x"))
        check_id("webhook", one.client)
        return one

    def _found(self, exchange: Exchange) -> tuple[Subscriber, Webhook]:
        wanted = self._wanted(exchange)
        found = self._registry.find(*wanted.key)
        if found is None or found.webhook is None:
            raise Problem("not-found", f"{wanted.topic} has no webhook {wanted.name}; PUT it first.")
        return found, found.webhook

    async def list(self, exchange: Exchange) -> Response:
        self._wanted(exchange)
        found = self._registry.webhooks(exchange.user.name, exchange.topic)
        return answer(schemas.Webhooks([await self._dispatcher.look(one) for one in found]))

    async def get(self, exchange: Exchange) -> Response:
        return answer(await self._dispatcher.look(self._found(exchange)[0]))

    async def put(self, exchange: Exchange) -> Response:
        """Create a webhook, or change its URL and secrets; an ended webhook starts again."""
        wanted = self._wanted(exchange)
        before = self._registry.find(*wanted.key)
        if before is not None and before.webhook is None:
            raise Problem("conflict", f"{wanted.name} is a subscriber of this topic; choose another name.")
        url, named = _read(await exchange.json())
        exchange.check(lambda user: user.may_get(exchange.topic))
        self._registry.check_apart(wanted)
        shown: str | UnsetType = UNSET
        if named is None:
            named = before.webhook.secrets if before is not None and before.webhook is not None else None
        if named is None:
            shown = format_secret(secrets.token_bytes(32))
            named = (shown,)
        one = replace(wanted, webhook=Webhook(url, named))
        self._registry.put(one)
        async with self._clients.subscriber(one.user, one.client) as client:
            await client.subscribe(one.topic)
        await self._dispatcher.stop(one.key)
        self._dispatcher.start(one)
        return answer(self._dispatcher.facts(one, shown), 200 if before is not None else 201)

    async def delete(self, exchange: Exchange) -> Response:
        """Remove a webhook with its undelivered messages and dead letters."""
        one, _ = self._found(exchange)
        async with self._stopped(one) as mailbox:
            with contextlib.suppress(NotSubscribed):
                await mailbox.client.unsubscribe(one.topic)
            mailbox.empty()
            mailbox.client.forget_losses(one.topic, lambda transaction: losses.forget(transaction, one.topic))
            self._registry.remove(one)
        return nothing()

    async def dead_letters(self, exchange: Exchange) -> Response:
        one, _ = self._found(exchange)
        after = int(exchange.number("after", 0, 1 << 62))
        most = exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        beginnings = exchange.truth("beginnings")
        async with self._clients.subscriber(one.user, one.client) as client:
            return answer(dead_letters.dead_letters(Mailbox(client, one.topic), after, most, beginnings=beginnings))

    async def purge(self, exchange: Exchange) -> Response:
        """Drop dead letters that are older than `age` seconds."""
        one, _ = self._found(exchange)
        if "age" not in exchange.request.query_params:
            raise Problem("bad-request", "age is needed: the least age of the dead letters to drop, in seconds.")
        before = time.time() - exchange.number("age", 0.0, 1e12)
        delivery_worker = self._dispatcher.delivery_worker(one.key)
        if delivery_worker is not None:
            return answer(schemas.LettersPurged(delivery_worker.purge(before)))
        async with self._stopped(one) as mailbox:
            return answer(schemas.LettersPurged(dead_letters.purge(mailbox, before)))

    async def redrive(self, exchange: Exchange) -> Response:
        """Deliver waiting messages now and dead letters again; an ended webhook starts again."""
        return answer(schemas.Redriven(await self._redrive(exchange)))

    async def retry(self, exchange: Exchange) -> Response:
        """Do the same, under its earlier name."""
        return answer(schemas.Retried(await self._redrive(exchange)))

    async def _redrive(self, exchange: Exchange) -> int:
        one, hook = self._found(exchange)
        delivery_worker = self._dispatcher.delivery_worker(one.key)
        if delivery_worker is not None:
            return delivery_worker.redrive()
        async with self._stopped(one) as mailbox:
            count = mailbox.client.write(lambda transaction: dead_letters.redrive(transaction, one.topic))
            one = replace(one, webhook=replace(hook, state=ACTIVE, reason=""))
            self._registry.put(one)
        return count

    @asynccontextmanager
    async def _stopped(self, one: Subscriber) -> AsyncIterator[Mailbox]:
        """Stop a webhook during the block and yield its mailbox. Afterwards it starts again if it still exists."""
        await self._dispatcher.stop(one.key)
        try:
            async with self._clients.subscriber(one.user, one.client) as client:
                yield Mailbox(client, one.topic)
        finally:
            found = self._registry.find(*one.key)
            if found is not None:
                self._dispatcher.start(found)


def _read(facts: Any) -> tuple[str, tuple[str, ...] | None]:
    """Return URL and secrets of a request; secrets None: it has none.

    Raises:
        Problem: they are not valid.
    """
    if not isinstance(facts, dict) or not isinstance(facts.get("url"), str) or facts.keys() - {"url", "secrets"}:
        raise Problem("bad-request", 'The body is not valid; send {"url": "https://…"}, and optionally "secrets".')
    url, named = facts["url"], facts.get("secrets")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or len(url) > WEBHOOK_URL_LENGTH_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise Problem(
            "bad-request",
            f"url must begin with http:// or https://, with at most {WEBHOOK_URL_LENGTH_MAX:,} characters.",
        )
    if is_masked(url):
        raise Problem(
            "bad-request", "This url contains *** in place of user, password or query; send the complete URL."
        )
    if named is None:
        return url, None
    if not isinstance(named, list) or not 0 < len(named) <= WEBHOOK_SECRETS_MAX:
        raise Problem("bad-request", f"secrets must be a list of 1 to {WEBHOOK_SECRETS_MAX}.")
    for one in named:
        try:
            parse_secret(one if isinstance(one, str) else "")
        except ValueError as error:
            raise Problem("bad-request", f"{error}.") from None
    return url, tuple(named)
