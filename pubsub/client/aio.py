"""Offer `AsyncClient`: the calls of `Client` over the same session, with futures in place of waiting threads.

The Messenger's thread drives the sockets. After each turn it checks the conditions of waiting coroutines and wakes
those that are met. A call takes messages only after its last `await`, so a cancelled call has taken nothing. Commits
run on the event loop's thread: they take tens of microseconds each, plus an fsync for `subscribe`, `transaction` and a
power-safe client. With a state in PostgreSQL they run on a thread of their own (see `step_thread`).

The rule is docs/explanation/client-session.md, D4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from threading import get_ident
from time import monotonic, time
from typing import Any, Final, Unpack

from pubsub.client.arguments import Headers, check_count, metadata_of
from pubsub.client.async_publisher import AsyncPublisher as AsyncPublisher  # noqa: PLC0414 - handed on
from pubsub.client.async_service_calls import AsyncServiceCalls
from pubsub.client.async_topic_calls import AsyncTopicCalls
from pubsub.client.awaited import Awaited
from pubsub.client.client_base import ACKNOWLEDGE_SECONDS
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outbox import counters
from pubsub.client.core.waiting import Hold, check_hold
from pubsub.client.explaining import add_obstacles, is_silence, name_options
from pubsub.client.flows.apart import apart, run_apart
from pubsub.client.flows.batches import BATCH_MAX, BatchProcessing
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.group_waits import GroupOptions, make_wish
from pubsub.client.flows.handlers import MANY, AsyncHandler, AsyncManyHandler, check_handler
from pubsub.client.flows.processing import PROCESS_MAX, Processing
from pubsub.client.flows.side_by_side import SideBySide
from pubsub.client.flows.turns import Turns, check_topics
from pubsub.client.flows.worker_pool import check_concurrency
from pubsub.client.flows.worker_pool_tasks import in_tasks
from pubsub.client.group_calls import Claim, check_only_group
from pubsub.client.guards import guards, runs_handlers, within_call
from pubsub.client.look_back import TopicTimes
from pubsub.client.outgoing.writing import RowTicket, RowTimes, check_alone, write_rows_async
from pubsub.client.publisher import Publisher
from pubsub.client.starts import StartAt, check_begin
from pubsub.client.step_thread import step_thread
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.client.ttl import all_with_ttl, with_ttl
from pubsub.errors import CallerError, StorageError
from pubsub.protocol import check_topic

BREATH_SECONDS: Final = 0.005
"""Longest time for which calls that never wait keep other coroutines from running."""


class AsyncClient(AsyncServiceCalls, AsyncTopicCalls):
    """A durable client for asyncio. Each call does the same as the call of that name of `Client`, and raises the same.

    The arguments are those of `Client`. Opening reads the disk, so `async with AsyncClient(…)` blocks for some
    milliseconds.
    """

    _breathed = 0.0

    @staticmethod
    def _opened(calls: Calls) -> Awaited:
        session = calls.session
        if session.store.database:
            session.thread = step_thread(session.name, session.recover)
            calls.puts.soon = session.thread.submit
        else:
            calls.puts.soon = lambda write: asyncio.get_running_loop().call_soon(write)
        return Awaited(session)

    async def _run(self, flow: Flow[Result], *, breathes: bool = True, here: bool = False) -> Result:
        """Run a call's flow.

        It takes messages and commits between its last `await` and its return, so a cancellation takes nothing. Every
        `await` in here ends with a cancellation, at any point. `breathes`: the call may find all it needs without
        waiting, so other coroutines get a chance to run first. `here`: it commits nothing.
        """
        session = self._held.calls.session  # Every call looks its calls up first, so the flow runs on this session.
        awaited: Awaited = self._held.metadata
        held = session.held_here
        try:
            if session.thread is not None and not here:
                return await run_apart(session, awaited, flow)
            if breathes:
                await self._breathe()
            wait = next(flow)
            while True:
                done = await awaited.wait(wait)
                self._breathed = monotonic()
                wait = flow.send(done)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except BaseException as error:
            flow.close()
            if not (held and within_call()):
                session.recover()
                name_options(session.settings, error)
            if is_silence(session, error):
                await asyncio.to_thread(add_obstacles, session, error)
            raise

    async def _breathe(self) -> None:
        """Let other coroutines run, and a cancellation arrive, if calls have not waited for BREATH_SECONDS."""
        now = monotonic()
        # Inside a transaction no other coroutine may use the client.
        if now - self._breathed >= BREATH_SECONDS and self._held.calls.session.owner != get_ident():
            self._breathed = now
            await asyncio.sleep(0)

    async def put(
        self,
        topic: str,
        body: bytes,
        *,
        key: bytes = b"",
        headers: Headers | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        connection: Any = None,
        wait: bool = True,
    ) -> Ticket:
        """Publish one message; arguments, result and errors as `Client.put`.

        After a cancellation the message is in doubt, as after a time-out, or was not put at all.
        """
        if connection is not None:
            check_alone(transaction, timeout)
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            await write_rows_async(connection, topic, (body,), keys=(key,), headers=(headers,), **times)
            return RowTicket()
        headers = headers if ttl is None else with_ttl(headers, ttl)
        at_once = delay is None and deliver_at is None and transaction is None
        if at_once and wait is True:
            # This put always waits. Without the pause, puts keep the order in which they began.
            return await self._run(self._calls.puts.put(topic, body, key, headers, timeout), breathes=False)
        if at_once and wait is False:
            await self._breathe()
            session, calls = self._session, self._calls
            now = await apart(
                session, partial(guarded, session, calls.puts.put_now, topic, body, key, headers, timeout)
            )
            if now is not None:
                return now
        more = *metadata_of(key, headers), delay, deliver_at
        flow = self._calls.puts.put_many(topic, (body,), timeout, transaction, wait, *more)
        (row,) = await self._run(flow, here=transaction is not None)
        return Ticket(row)

    async def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[bytes] = (),
        headers: Sequence[Headers | None] = (),
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        connection: Any = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Publish messages in order, in one commit; arguments, result and errors as `Client.put_many`."""
        if connection is not None:
            check_alone(transaction, timeout)
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            await write_rows_async(connection, topic, bodies, keys=keys, headers=headers, **times)
            return ()
        bodies, headers = (bodies, headers) if ttl is None else all_with_ttl(bodies, headers, ttl)
        flow = self._calls.puts.put_many(topic, bodies, timeout, transaction, wait, keys, headers, delay, deliver_at)
        return counters(await self._run(flow, here=transaction is not None))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> AsyncPublisher:
        """Open a publisher, which `async with` flushes at its end; arguments as `Client.publisher`."""
        made = Publisher(self._held, self._run, topic, records=records, size=size, linger=linger)
        return AsyncPublisher(made, self._held, self._run)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the server has stored every unfinished put on its disk; arguments and errors as `Client.flush`."""
        await self._run(self._calls.puts.flush(timeout))

    async def subscribe(
        self,
        topic: str,
        *,
        start: StartAt | None = None,
        fresh: bool = False,
        timeout: float | None = None,
        group: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> None:
        """Receive messages from a start on, continue the subscription, or join a group; see `Client.subscribe`."""
        begins = None if start is None else check_begin(start, time())
        check_only_group(group, options)
        if group is not None:
            wish = make_wish(begins, options)
            await self._run(self._calls.group_waits.subscribe(topic, group, wish, timeout, fresh=fresh))
            return
        await self._run(self._calls.subscribing.intend(topic, True, timeout, fresh=fresh, start=begins))

    async def seek(self, topic: str, start: StartAt, *, timeout: float | None = None) -> int:
        """Move the subscription to a start, and return the replay's number; see `Client.seek`."""
        begins = check_begin(start, time())
        await asyncio.to_thread(self._look_back.check_held, topic, begins)
        return await self._run(self._calls.subscribing.seek(topic, begins, timeout))

    async def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """End the subscription of a topic and drop its backlog; arguments and errors as `Client.unsubscribe`."""
        await self._run(self._calls.subscribing.intend(topic, False, timeout))

    def read(
        self,
        topic: str,
        *,
        start: StartAt = "earliest",
        stop: StartAt | None = None,
        timeout: float | None = None,
        skip_lost: bool = False,
    ) -> AsyncIterator[Message]:
        """Yield stored messages of a topic without a subscription; arguments and errors as `Client.read`."""
        return self._look_back.range(topic, start, stop, timeout, skip_lost=skip_lost).awaited()

    async def times(self, topic: str) -> TopicTimes:
        """Return the times and the number of a topic's stored messages; errors as `Client.times`."""
        return await asyncio.to_thread(self._look_back.times, topic)

    async def get(self, topic: str, timeout: float | None = None, *, group: str | None = None) -> Message | None:
        """Return the next message, or None if none came in time; arguments and errors as `Client.get`."""
        batch = await self.get_many(topic, 1, timeout, group=group)
        return batch[0] if batch else None

    async def get_many(
        self,
        topic: str,
        max: int = RECEIVE_MAX,  # noqa: A002
        timeout: float | None = None,
        *,
        group: str | None = None,
    ) -> Batch:
        """Return the next messages that are here, up to `max`; arguments and errors as `Client.get_many`."""
        if group is not None:
            return await self._run(self._calls.group_gets.get_many(topic, group, max, timeout))
        self._check_free(topic)
        return await self._run(self._calls.gets.get_many(topic, max, timeout))

    async def messages(
        self, topic: str, timeout: float | None = None, *, group: str | None = None
    ) -> AsyncIterator[Message]:
        """Yield messages until none comes for `timeout` seconds; arguments and errors as `Client.messages`."""
        if group is not None:
            async for message in self._group_messages(topic, group, timeout):
                yield message
            return
        self._check_free(topic)
        while True:
            calls = self._calls
            found = await self._run(calls.gets.get_on(topic, timeout))
            if found is None:
                return
            batch, chunk = found
            try:
                for _, message in zip(chunk.claims(), batch, strict=False):
                    yield message
            finally:
                end = partial(guarded, calls.session, calls.gets.end_chunk, batch.topic, chunk)
                await apart(calls.session, end)

    async def process(
        self,
        topic: str | Sequence[str],
        handler: AsyncHandler,
        timeout: float | None = None,
        max: int = PROCESS_MAX,  # noqa: A002
        hold: Hold = "all",
        *,
        group: str | None = None,
        claim: Claim = "auto",
        concurrency: int = 1,
    ) -> int:
        """Pass messages to a handler, each once: its effect, its puts and the position commit together or not at all.

        `handler(message, transaction)` is an `async def` function or a plain one; an awaitable result is awaited. The
        transaction begins with its first use. Before that, the handler may await anything. After that it must not wait,
        because every other user of the client would wait too: it is rolled back and gets a CallerError. `await
        client.put(…, transaction=transaction)` never waits. So await first, then read and write. With a state in
        PostgreSQL, the handler may wait: it awaits `transaction.execute(…)`, or `transaction.begin()`.

        While a handler awaits, other coroutines may use the client; only calls that take from the same topic wait for
        its return. If the topic is unsubscribed or the client closed in that time, nothing of the handler's work
        happens. A cancelled handler gets the CancelledError at its `await`. If it lets the error through, it is rolled
        back, the message comes again, and the attempt does not count. An attempt also does not count if the handler is
        of a kind that cannot work (a generator), or waits with its transaction open.

        Args:
            topic, handler, timeout, max, hold: as for `Client.process`.
            concurrency: above 1, so many handlers run side by side, each in a task of its own; see `Client.process`.
            group, claim: as for `Client.process`. A message that is not claimed yet is claimed before its handler
                begins, while other tasks run.

        Returns:
            The number of messages taken, dead letters included; 0 if none came in time.

        Raises:
            PubsubError: as `Client.process`.
        """
        check_handler(handler, awaits=True)
        check_count("max", max)
        check_hold(hold)
        check_concurrency(concurrency)
        if group is not None:
            return await self._process_group(topic, group, handler, timeout, max, concurrency, claim)
        topics, session, gets = check_topics(topic), self._session, self._calls.gets
        self._check_free(*topics)
        if concurrency > 1:
            work = session, SideBySide(session, gets, topics, hold, concurrency), handler, timeout, max, concurrency
            return await in_tasks(*work, self._run, self._breathe, self._run_here)
        return await self._process_topics(Processing(session, gets), topics, handler, timeout, max, hold)

    async def process_many(
        self,
        topic: str | Sequence[str],
        handler: AsyncManyHandler,
        timeout: float | None = None,
        max: int = BATCH_MAX,  # noqa: A002
    ) -> int:
        """Pass messages to a handler, many at once: their effects, its puts and the position are one commit.

        `handler(messages, transaction)` may be an `async def` function, as for `process`; arguments, result and errors
        as `Client.process_many`.
        """
        check_handler(handler, awaits=True, takes=MANY)
        check_count("max", max)
        topics = check_topics(topic)
        self._check_free(*topics)
        processing = BatchProcessing(self._session, self._calls.gets)
        return await self._process_topics(processing, topics, handler, timeout, max, "all")

    async def _process_topics(
        self,
        processing: Processing,
        topics: Sequence[str],
        handler: Callable[[Any, Transaction], Awaitable[None] | None],
        timeout: float | None,
        most: int,
        hold: Hold,
    ) -> int:
        session, gets = self._session, self._calls.gets
        until = session.until(timeout, started := session.now)
        while True:
            ready = await self._run(gets.first_of(topics, started, until, hold))
            turns = Turns(gets, topics, ready, most, hold, processing.turn)
            for sub, number in turns:
                try:
                    turns.taken += await processing.batch(sub, handler, number, self._breathe, awaits=True, hold=hold)
                except BaseException:
                    session.recover(handled=True)
                    raise
            if turns.taken or not ready:
                return turns.taken

    def _check_free(self, *topics: str) -> None:
        """Reject a call of a handler on its own topic, since the call would wait for the handler's return."""
        for topic in topics:
            sub = self._session.core.subscriptions.get(check_topic(topic))
            hand = sub.busy() if sub is not None and sub.busy is not None else None
            if hand is not None and (hand is (task := asyncio.current_task()) or task in getattr(hand, "tasks", ())):
                raise CallerError(f"this handler is handling a message of {topic}; return from it to get the next one")

    async def close(self) -> None:
        """Fsync, acknowledge, and release everything; unfinished puts are kept.

        A cancellation takes effect after the close is complete. Raises as `Client.close`.
        """
        if self._relay is not None:
            await asyncio.to_thread(self._stop_relay)
        calls = self._held.last()
        with suppress(StorageError):  # The closing thread tries this once more, and raises the error.
            await apart(calls.session, partial(guarded, calls.session, calls.close_here))
        closing = asyncio.ensure_future(asyncio.to_thread(calls.close, ACKNOWLEDGE_SECONDS))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])  # At most 0.2 s. Then the next client of that name finds the state free.
            raise
        finally:
            thread, calls.session.thread = calls.session.thread, None
            if thread is not None:
                thread.stop()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


guards(AsyncClient._run)
runs_handlers(AsyncClient.process)
runs_handlers(AsyncClient.process_many)
runs_handlers(AsyncClient.serve)
