"""Runs all webhooks of a gateway, each independently of the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from random import SystemRandom
from typing import Final

from msgspec import UNSET, UnsetType

from pubsub.base.urls import masked
from pubsub.errors import PubsubError
from pubsub.gateway import schemas
from pubsub.gateway.clients import Clients
from pubsub.gateway.mailbox import Mailbox
from pubsub.gateway.problems import Problem
from pubsub.gateway.registry import ACTIVE, ENDED, Registry, Subscriber
from pubsub.gateway.webhooks import dead_letters
from pubsub.gateway.webhooks.delivery_worker import TROUBLE_SECONDS, DeliveryWorker
from pubsub.gateway.webhooks.posting import make_http_client

Key = tuple[str, str, str]
_log: Final = logging.getLogger("pubsub.gateway")


class Dispatcher:
    """The running webhooks.

    Args:
        registry: the webhooks.
        clients: their clients.
    """

    def __init__(self, registry: Registry, clients: Clients) -> None:
        self._registry, self._clients = registry, clients
        self._http_client = make_http_client()
        self._chance = SystemRandom()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._runners: dict[Key, DeliveryWorker] = {}
        self._trouble: dict[Key, str] = {}
        self._before: dict[Key, tuple[int, int]] = {}
        self._ended: dict[Key, tuple[int, schemas.Failure | None]] = {}
        """Number of dead letters and last failure of webhooks that do not run."""

    def start_all(self) -> None:
        for one in self._registry.all():
            self.start(one)

    def start(self, one: Subscriber) -> None:
        """Start a webhook, unless it has ended."""
        if one.webhook is not None and one.webhook.state == ACTIVE and one.key not in self._tasks:
            task = self._tasks[one.key] = asyncio.create_task(self._supervise(one))
            task.add_done_callback(_told)

    async def stop(self, key: Key) -> None:
        """Stop a webhook; undelivered messages stay on disk."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._trouble.pop(key, None)
        self._ended.pop(key, None)

    async def close(self) -> None:
        for key in list(self._tasks):
            await self.stop(key)
        await self._http_client.aclose()

    async def _supervise(self, one: Subscriber) -> None:
        while True:
            try:
                async with self._clients.subscriber(one.user, one.client) as client:
                    mailbox = Mailbox(client, one.topic)
                    if not client.subscribed(one.topic):
                        await client.subscribe(one.topic)
                    reason = await self._run(one, mailbox)
                    dead_letters.dead_letter_all(mailbox, reason, time.time())
                    self._ended[one.key] = dead_letters.count(mailbox), dead_letters.last_failure(mailbox)
                    self._registry.end(one, ENDED, reason)
                    _log.warning(
                        "webhook %s of %s has ended: %s; retry starts it again",
                        one.name,
                        one.topic,
                        reason,
                    )
                    await client.unsubscribe(one.topic)
                    break
            except (PubsubError, Problem) as error:
                self._trouble[one.key] = str(error)
                _log.warning("webhook %s of %s: %s", one.name, one.topic, error)
                if self._has_ended(one):
                    break
            except Exception as error:  # noqa: BLE001 - the webhook restarts: an internal error never ends it.
                self._trouble[one.key] = f"an error inside the gateway: {type(error).__name__}; its log says why"
                _log.exception("webhook %s of %s", one.name, one.topic)
            await asyncio.sleep(TROUBLE_SECONDS)
        self._tasks.pop(one.key, None)

    def _has_ended(self, one: Subscriber) -> bool:
        """Return whether only the unsubscription failed; a redrive or removal repeats it."""
        found = self._registry.find(*one.key)
        return found is None or found.webhook is None or found.webhook.state == ENDED

    async def _run(self, one: Subscriber, mailbox: Mailbox) -> str:
        delivery_worker = self._runners[one.key] = DeliveryWorker(one, mailbox, self._http_client, self._chance)
        self._trouble.pop(one.key, None)
        try:
            return await delivery_worker.run()
        finally:
            del self._runners[one.key]
            delivered, failed = self._before.get(one.key, (0, 0))
            self._before[one.key] = (delivered + delivery_worker.delivered, failed + delivery_worker.failed)

    def delivery_worker(self, key: Key) -> DeliveryWorker | None:
        return self._runners.get(key)

    async def look(self, one: Subscriber) -> schemas.Webhook:
        """Return the state of a webhook. If it ended before this process started, read its mailbox."""
        assert one.webhook is not None
        if one.webhook.state == ENDED and one.key not in self._ended and one.key not in self._runners:
            with contextlib.suppress(PubsubError, Problem):  # The numbers are unknown then.
                async with self._clients.subscriber(one.user, one.client) as client:
                    mailbox = Mailbox(client, one.topic)
                    self._ended[one.key] = dead_letters.count(mailbox), dead_letters.last_failure(mailbox)
        return self.facts(one)

    def facts(self, one: Subscriber, secret: str | UnsetType = UNSET) -> schemas.Webhook:
        """Return the state of a webhook, without its secrets and those in its URL, except a new one."""
        hook, delivery_worker = one.webhook, self._runners.get(one.key)
        assert hook is not None
        delivered, failed = self._before.get(one.key, (0, 0))
        count, last = (
            (delivery_worker.dead_letters, delivery_worker.last_failure)
            if delivery_worker
            else self._ended.get(one.key, (None, None))
        )
        return schemas.Webhook(
            topic=one.topic,
            name=one.name,
            url=masked(hook.url),
            secrets=len(hook.secrets),
            state=hook.state,
            reason=hook.reason or (delivery_worker.trouble if delivery_worker else self._trouble.get(one.key, "")),
            waiting=delivery_worker.waiting if delivery_worker else 0,
            dead_letters=count,
            last_failure=last,
            delivered=delivered + (delivery_worker.delivered if delivery_worker else 0),
            failed=failed + (delivery_worker.failed if delivery_worker else 0),
            secret=secret,
        )

    def totals(self) -> dict[str, int]:
        runners = self._runners.values()
        before = self._before.values()
        return {
            "running": len(self._runners),
            "waiting": sum(delivery_worker.waiting for delivery_worker in runners),
            "dead_letters": sum(delivery_worker.dead_letters for delivery_worker in runners),
            "delivered": sum(delivery_worker.delivered for delivery_worker in runners)
            + sum(pair[0] for pair in before),
            "failed": sum(delivery_worker.failed for delivery_worker in runners) + sum(pair[1] for pair in before),
        }


def _told(task: asyncio.Task[None]) -> None:
    """Log an unexpected error of a webhook's task, since no other task awaits it."""
    if not task.cancelled() and task.exception() is not None:
        _log.error(
            "a webhook has stopped after an internal error; restart the gateway",
            exc_info=task.exception(),
        )
