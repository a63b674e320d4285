"""Offer the publisher of an `AsyncClient`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any

from pubsub.client.arguments import Headers, check_contents
from pubsub.client.filling import BatchTicket
from pubsub.client.flows.flow import Flow
from pubsub.client.publisher import Publisher
from pubsub.client.reopening import Reopening
from pubsub.client.ttl import with_ttl
from pubsub.errors import PubsubError


class AsyncPublisher:
    """Send messages of one topic in batches; made by `AsyncClient.publisher`."""

    def __init__(
        self, publisher: Publisher, held: Reopening, run: Callable[[Flow[Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self._publisher, self._held, self._run = publisher, held, run

    async def put(
        self,
        body: bytes,
        *,
        key: bytes = b"",
        headers: Headers | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
    ) -> BatchTicket:
        """Put one message, and wait only while two windows of batches are unfinished (`ClientSettings.window`).

        Arguments, result and errors are those of `Publisher.put`. A cancellation during the wait puts nothing.
        """
        headers = headers if ttl is None else with_ttl(headers, ttl)
        if self._publisher.crowded:
            check_contents([body], [key], [headers])
            await self._run(self._publisher.room())
        return self._publisher.add(body, key, headers, delay, deliver_at)

    async def flush(self, timeout: float | None = None) -> None:
        """Send the open batch, and wait until all messages put so far are on the server's disk.

        Args:
            timeout: in seconds; None: the client's.

        Raises:
            PubsubError: as `Client.put`.
        """
        self._publisher.close_batch()
        await self._run(self._held.current().puts.flush_topic(self._publisher.topic, timeout))

    async def __aenter__(self) -> AsyncPublisher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                await self.flush()
            else:
                with suppress(PubsubError):
                    self._publisher.close_batch()
        finally:
            self._publisher.leave()
