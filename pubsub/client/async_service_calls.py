"""Add calls of services to `AsyncClient`: calls that happen once (docs/clients.md, *Calls that happen once*)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

from pubsub.client.arguments import Headers, check_count
from pubsub.client.async_group_calls import AsyncGroupCalls
from pubsub.client.core.calling import Reply
from pubsub.client.core.waiting import NONE
from pubsub.client.flows.group_serving import GroupServing, check_concurrent_group
from pubsub.client.flows.handlers import check_handler
from pubsub.client.flows.serving import AsyncCallHandler, AsyncServing, TryLater
from pubsub.client.flows.worker_pool import check_concurrency
from pubsub.client.storage.transaction import Transaction


class AsyncServiceCalls(AsyncGroupCalls, ABC):
    """The calls of `AsyncClient` for services."""

    @abstractmethod
    def _check_free(self, *topics: str) -> None:
        """Reject a call of a handler on its own topic."""

    async def call(
        self,
        service: str,
        body: bytes,
        *,
        timeout: float | None = None,
        id: str | None = None,  # noqa: A002
        key: bytes = b"",
        headers: Headers | None = None,
        deadline: float | None = None,
        parts: int = 1,
    ) -> Reply:
        """Call a service once, and wait for its reply; arguments, result and errors as `Client.call`.

        After a cancellation the call continues, as after a time-out.
        """
        named = id, key, headers, deadline, parts
        return await self._run(self._calls.calling.call(service, body, timeout, *named))

    async def request(
        self,
        service: str,
        body: bytes,
        *,
        timeout: float | None = None,
        id: str | None = None,  # noqa: A002
        key: bytes = b"",
        headers: Headers | None = None,
        deadline: float | None = None,
        parts: int = 1,
        transaction: Transaction | None = None,
    ) -> str:
        """Make a call without waiting for its reply, and return its ID; arguments and errors as `Client.request`."""
        named = id, key, headers, deadline, parts, transaction
        return await self._run(self._calls.calling.request(service, body, timeout, *named))

    async def reply(self, id: str, *, timeout: float | None = None) -> Reply:  # noqa: A002
        """Wait for the reply to a call; arguments, result and errors as `Client.reply`."""
        return await self._run(self._calls.calling.reply(id, timeout))

    async def serve(
        self,
        service: str,
        handler: AsyncCallHandler,
        *,
        timeout: float | None = None,
        max: int | None = None,  # noqa: A002
        part: int = 0,
        parts: int = 1,
        group: bool = False,
        concurrency: int = 1,
    ) -> int:
        """Serve a service as its worker; arguments, result and errors as `Client.serve`.

        The handler is an `async def` function or a plain one, under the rules of `process`. Calls are handled one at a
        time. A cancellation rolls the handler back, and the call comes again.
        """
        check_handler(handler, awaits=True)
        if max is not None:
            check_count("max", max)
        check_concurrency(concurrency)
        check_concurrent_group(group, concurrency)
        calls, session = self._calls, self._session
        if group:
            worker = GroupServing(calls.group_waits, service, parts, concurrency, self._run_flow)
            return await self._serve_group(worker, handler, timeout, max, concurrency)
        serving = AsyncServing(session, calls.gets, calls.subscribing, service, part, parts)
        self._check_free(serving.topic)
        session.until(timeout)
        await self._run(serving.begin_serving())
        while (left := serving.left(max)) > 0:
            if (sub := await self._run(serving.next(inf if timeout is None else session.now + timeout))) is None:
                break
            try:
                await serving.batch(sub, serving.wrapped(handler), left, self._breathe, awaits=True, hold=NONE)
            except TryLater as later:
                await self._run(serving.pause(later.seconds))
            except BaseException:
                session.recover(handled=True)
                raise
        return serving.served

    async def withdraw(self, service: str, *, timeout: float | None = None, part: int = 0, parts: int = 1) -> None:
        """Stop being a service's worker; arguments and errors as `Client.withdraw`."""
        await self._run(self._calls.subscribing.withdraw(service, part, parts, timeout))
