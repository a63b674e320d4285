"""One running webhook: takes messages from its topic, delivers and retries them, and keeps its state on disk.

A message leaves the mailbox after the receiver has answered 2xx. If the process ends in between, the message is
delivered again under the same `webhook-id`, by which the receiver recognises it. Each webhook has its own task, client
and window, so none delays another.

The rules are those of docs/explanation/gateway.md, H9 and H11.
"""

from __future__ import annotations

import asyncio
import logging
import time
from random import Random
from typing import Any, Final

import httpx2

from pubsub.base.clock import MICROSECONDS
from pubsub.client import Transaction
from pubsub.errors import PubsubError, Unavailable
from pubsub.gateway.limits import (
    DEAD_LETTERS_MAX,
    WEBHOOK_ATTEMPTS_MAX,
    WEBHOOK_CONCURRENCY,
    WEBHOOK_HEADERS_BYTES_MAX,
    WEBHOOK_WINDOW,
)
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.messages import DOUBTFUL, http_headers
from pubsub.gateway.registry import Subscriber
from pubsub.gateway.schemas import Failure
from pubsub.gateway.webhooks import dead_letters
from pubsub.gateway.webhooks.key_queues import Delivery, KeyQueues
from pubsub.gateway.webhooks.posting import Outcome, post
from pubsub.protocol.time_to_live import is_over
from pubsub.web.backoff import Backoff
from pubsub.web.pump import Pump, on_loop
from pubsub.web.schedule import Due

TAKE_SECONDS: Final = 30.0
"""Longest wait of one request for messages."""

BACKOFF: Final = Backoff(
    (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0), 1.0, 0.2, 86400.0
)
"""From seconds to a day; twelve attempts take about two and a half days."""

TROUBLE_SECONDS: Final = 5.0
"""Pause after an error of the service or the disk."""

_log: Final = logging.getLogger("pubsub.gateway")


class DeliveryWorker(Due[Delivery]):
    """One running webhook.

    Args:
        subscriber: the webhook.
        mailbox: of its client.
        poster: sends requests.
        chance: random part of back-offs.

    Attributes:
        delivered, failed: deliveries since the start of the process.
        letters: number of dead letters.
        last_failure: the last failed delivery, None if there is none.
        trouble: reason why deliveries pause, "" if they do not.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        mailbox: Mailbox,
        http_client: httpx2.AsyncClient,
        chance: Random,
    ) -> None:
        self.subscriber, self.mailbox = subscriber, mailbox
        self._http_client, self._chance = http_client, chance
        self._lanes = KeyQueues(WEBHOOK_CONCURRENCY)
        self._pump = Pump(f"webhook {subscriber.name} of {subscriber.topic}", on_loop, self, self._attempt)
        self._room = asyncio.Event()
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._loaded = 0
        self.delivered = self.failed = self.dead_letters = 0
        self.last_failure: Failure | None = None
        self.trouble = ""

    async def run(self) -> str:
        """Deliver until cancellation, or until the receiver wants no more; return the reason."""
        self.dead_letters, self.last_failure = dead_letters.count(self.mailbox), dead_letters.last_failure(self.mailbox)
        taking = asyncio.create_task(self._take())
        try:
            working: set[asyncio.Future[Any]] = {taking, self._pump.start(), self._over}
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            taking.cancel()
            await self._pump.close()
            await asyncio.gather(taking, return_exceptions=True)
        return self._over.result()

    async def _take(self) -> None:
        """Keep the window full, beginning with messages of an earlier run."""
        self._load()
        while not self._over.done():
            if len(self._lanes) >= WEBHOOK_WINDOW or self.dead_letters >= DEAD_LETTERS_MAX:
                full = f"there are {DEAD_LETTERS_MAX:,} dead letters, which is the limit; redrive or drop them"
                self.trouble = "" if self.dead_letters < DEAD_LETTERS_MAX else full
                self._room.clear()
                await self._room.wait()
                continue
            try:
                self._load()  # Messages of the last take, including those that could not be read then.
                self._pump.wake()
                await self.mailbox.take(WEBHOOK_WINDOW - len(self._lanes), TAKE_SECONDS)
                self.trouble = ""
            except Unavailable as error:
                self.trouble = str(error)
            except PubsubError as error:
                self.trouble = str(error)
                _log.warning("webhook %s of %s: %s", self.subscriber.name, self.subscriber.topic, error)
                await asyncio.sleep(TROUBLE_SECONDS)

    def _load(self) -> None:
        now, wall = time.monotonic(), time.time()
        for number, key, attempts, due in dead_letters.waiting(self.mailbox, self._loaded):
            self._lanes.add(Delivery(number, key, attempts, now + BACKOFF.left(attempts, due, wall)))
            self._loaded = number

    def begin(self) -> tuple[list[Delivery], float | None]:
        """Return the deliveries to start now, as `Lanes.begin`; none if the receiver wants no more."""
        return ([], None) if self._over.done() else self._lanes.begin(time.monotonic())

    def later(self, delivery: Delivery) -> None:
        """Count an attempt in memory, because the disk could not store its result."""
        seconds = BACKOFF.seconds(delivery.attempts + 1, self._chance.random())
        self._lanes.failed(delivery, time.monotonic() + seconds)

    def end(self, delivery: Delivery) -> None:
        """Handle the end of an attempt: there may be room for more messages."""
        self._room.set()

    async def _attempt(self, delivery: Delivery) -> None:
        """Try one delivery. Any error counts as a failure, also one caused by the content of a message or response."""
        mail: Mail | None = None
        try:
            mail = dead_letters.load(self.mailbox, delivery.number)
            if mail is None:
                self._lanes.done(delivery)
                return
            if mail.body is None:
                self._dead_letter(delivery, mail.note)
                return
            if is_over(mail.headers, mail.stamp, int(time.time() * MICROSECONDS)):
                dead_letters.delivered(self.mailbox, delivery.number)
                self._lanes.done(delivery)
                self.mailbox.client.count_expired()
                return
            outcome = await self._post(mail, mail.body)
        except Exception as error:  # noqa: BLE001 - the error is counted and logged.
            ours = not isinstance(error, PubsubError)
            level = logging.ERROR if ours else logging.WARNING
            _log.log(level, "webhook %s of %s: %s", self.subscriber.name, self.subscriber.topic, error, exc_info=ours)
            outcome = Outcome(reason=_reason(error))
        try:
            self._completed(delivery, mail, outcome)
        except Exception as error:
            self.trouble = _reason(error)
            raise

    async def _post(self, mail: Mail, body: bytes) -> Outcome:
        hook = self.subscriber.webhook
        assert hook is not None
        more = http_headers(mail.key, mail.headers, WEBHOOK_HEADERS_BYTES_MAX)
        if mail.doubtful:
            more[DOUBTFUL] = "true"
        topic = mail.source or self.subscriber.topic
        return await post(self._http_client, hook.url, hook.secrets, mail.id, topic, body, more)

    def _completed(self, delivery: Delivery, mail: Mail | None, outcome: Outcome) -> None:
        """Store the result of a delivery; mail None: its message could not be read.

        Raises:
            PubsubError: the disk failed.
        """
        if outcome.delivered:
            dead_letters.delivered(self.mailbox, delivery.number)
            self._lanes.done(delivery)
            self.delivered += 1
            return
        self.failed += 1
        attempts = delivery.attempts + 1
        if mail is not None:
            self.last_failure = dead_letters.failure(mail._replace(attempts=attempts, note=outcome.reason), time.time())
        if outcome.ended or attempts >= WEBHOOK_ATTEMPTS_MAX:
            self._dead_letter(delivery, outcome.reason)
            if outcome.ended and not self._over.done():
                self._over.set_result("the receiver answered 410")
            return
        seconds = BACKOFF.seconds(attempts, self._chance.random(), outcome.retry_after)
        dead_letters.failed(self.mailbox, delivery.number, attempts, time.time() + seconds, outcome.reason)
        self._lanes.failed(delivery, time.monotonic() + seconds)

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        dead_letters.dead_letter(self.mailbox, delivery.number, reason, time.time())
        self.dead_letters += 1
        self._lanes.done(delivery)

    def purge(self, before: float) -> int:
        """Drop the dead letters from before a time (seconds since 1970), and return their number."""
        purged = dead_letters.purge(self.mailbox, before)
        self.dead_letters -= purged
        self._room.set()
        return purged

    def redrive(self) -> int:
        """Try waiting messages now and dead letters after them. Return the number of both."""

        def redrive(transaction: Transaction) -> int:
            return dead_letters.redrive(transaction, self.mailbox.topic)

        hurried = self._lanes.hurry()
        redriven = self.mailbox.client.write(redrive)
        self.dead_letters -= redriven
        self._load()
        self._pump.wake()
        self._room.set()
        return hurried + redriven

    @property
    def waiting(self) -> int:
        """Messages taken and not delivered."""
        return len(self._lanes)


def _reason(error: Exception) -> str:
    if isinstance(error, PubsubError):
        return str(error)
    return f"an error inside the gateway: {type(error).__name__}; its log says why"
