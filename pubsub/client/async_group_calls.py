"""Add consumer groups to `AsyncClient` (see `group_calls`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from math import inf
from typing import Any

from pubsub.client.client_base import ClientBase
from pubsub.client.core.message import Batch, Message
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.group_processing import GroupProcessing, check_claim
from pubsub.client.flows.group_serving import GroupServing
from pubsub.client.flows.handlers import AsyncHandler, check_handler
from pubsub.client.flows.serving import LOOK_SECONDS, AsyncCallHandler
from pubsub.client.flows.worker_pool_tasks import in_tasks
from pubsub.client.settling import ended_by_a_member
from pubsub.errors import PubsubError, Unavailable


class AsyncGroupCalls(ClientBase, ABC):
    """The calls of `AsyncClient` about groups."""

    @abstractmethod
    async def _run(self, flow: Flow[Result], *, breathes: bool = True, here: bool = False) -> Result:
        """Run a call's flow."""

    @abstractmethod
    async def _breathe(self) -> None:
        """Let other coroutines run."""

    async def leave(self, topic: str, *, group: str, timeout: float | None = None) -> None:
        """Leave a consumer group, and give all back; arguments and errors as `Client.leave`."""
        await self._run(self._calls.group_waits.leave(topic, group, timeout))

    async def end_group(self, topic: str, group: str, *, force: bool = False, timeout: float | None = None) -> None:
        """End a consumer group for all its members; arguments and errors as `Client.end_group`."""
        await self._run(self._calls.group_waits.end(topic, group, timeout, force=force))

    async def _process_group(
        self,
        topic: object,
        group: str,
        handler: AsyncHandler,
        timeout: float | None,
        most: int,
        concurrency: int,
        claim: str,
    ) -> int:
        check_handler(handler, awaits=True)
        check_claim(claim)
        until, run, lead = self._session.until(timeout), self._run_flow, self._run_here
        while True:
            calls = self._calls
            session, member = calls.session, calls.group_waits.member_of(topic, group)
            source = GroupProcessing(calls.group_waits, member, most, concurrency, claim, self._run_flow)
            left = max(0.0, until - session.now)
            try:
                return await in_tasks(session, source, handler, left, most, concurrency, run, self._breathe, lead)
            except PubsubError as error:
                if not ended_by_a_member(session, error):
                    raise

    async def _serve_group(
        self, worker: GroupServing, handler: AsyncCallHandler, timeout: float | None, most: int | None, concurrency: int
    ) -> int:
        session, run, lead = self._calls.session, self._run_flow, self._run_here
        session.until(timeout)
        await self._run(worker.begin_serving())
        until = inf if timeout is None else session.now + timeout
        while (left := worker.left(most)) > 0:
            seconds = max(0.0, min(LOOK_SECONDS, until - session.now))
            wrapped = worker.wrapped_async(handler)
            try:
                taken = await in_tasks(session, worker, wrapped, seconds, left, concurrency, run, self._breathe, lead)
            except Unavailable:
                taken = 0
                if session.now >= until:
                    raise
            if taken:
                until = inf if timeout is None else session.now + timeout
            elif session.now >= until:
                break
        return worker.served

    async def _run_flow(self, flow: Flow[Any]) -> Any:
        return await self._run(flow, breathes=False)

    async def _run_here(self, flow: Flow[Any]) -> Any:
        return await self._run(flow, here=True)

    async def _group_messages(self, topic: str, group: str, timeout: float | None) -> AsyncIterator[Message]:
        while True:
            found: Batch = await self._run(self._calls.group_gets.get_on(topic, group, timeout))
            if not found:
                return
            yield found[0]
