"""The client for asyncio: the same calls over the same session, with futures in place of threads that wait.

The Messenger's thread drives the sockets; whenever it has made a turn it looks at what the coroutines wait for and
wakes those whose time has come. What a call takes it takes after its last `await`, so a call that is cancelled has
taken nothing. Commits are made on the event loop's thread: tens of microseconds each, and a disk's fsync for
`subscribe`, `transaction` and a client that is power_safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from math import inf
from threading import get_ident
from time import monotonic
from typing import Any, Final

from pubsub.client.arguments import Headers, beside_one, check_contents, check_count
from pubsub.client.awaited import Awaited
from pubsub.client.core.calling import Reply
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outbox import counters
from pubsub.client.explaining import add_obstacles, is_silence, name_options
from pubsub.client.filling import BatchTicket
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.processing import PROCESS_MAX, AsyncHandler, Processing, check_handler
from pubsub.client.flows.serving import AsyncCallHandler, AsyncServing, TryLater
from pubsub.client.flows.turns import Turns, check_topics
from pubsub.client.guards import guards, runs_handlers, within_call
from pubsub.client.publisher import Publisher
from pubsub.client.reopening import Reopening
from pubsub.client.shared import ACKNOWLEDGE_SECONDS, ClientBase
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.errors import CallerError, PubsubError, StorageError
from pubsub.protocol import check_topic

BREATH_SECONDS: Final = 0.005
"""Calls that find all they want without waiting let other coroutines have their turn so often."""


class AsyncPublisher:
    """Messages of one topic in batches; made by `AsyncClient.publisher`."""

    def __init__(
        self, publisher: Publisher, held: Reopening, run: Callable[[Flow[Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self._publisher, self._held, self._run = publisher, held, run

    async def put(self, body: bytes, *, key: bytes = b"", headers: Headers | None = None) -> BatchTicket:
        """Put one message; waits only where a window of batches is unfinished; cancelled then, it has not put."""
        if self._publisher.crowded:
            check_contents([body], [key], [headers])
            await self._run(self._publisher.room())
        return self._publisher.add(body, key, headers)

    async def flush(self, timeout: float | None = None) -> None:
        """Send the open batch and wait until everything put so far is on the server's disk."""
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


class AsyncClient(ClientBase):
    """A durable client for asyncio; every call does what `Client`'s of that name does, and raises as it does.

    Args: as `Client`'s. Opening it reads the disk; so `async with AsyncClient(…)` blocks for some milliseconds.
    """

    _breathed = 0.0

    @staticmethod
    def _opened(calls: Calls) -> Awaited:
        calls.puts.soon = lambda write: asyncio.get_running_loop().call_soon(write)
        return Awaited(calls.session)

    async def _run(self, flow: Flow[Result], *, breathes: bool = True) -> Result:
        """Drive a call. Between its last `await` and its return it takes and commits, so a cancellation takes nothing.

        What is awaited ends with a cancellation wherever that strikes. `breathes`: it may find all without waiting.
        """
        session = self._held.calls.session  # The flow is on it: a call finds its calls first.
        awaited: Awaited = self._held.beside
        held = session.held_here
        try:
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
        """Let others have their turn, and a cancellation its effect, where calls find all they want without waiting."""
        now = monotonic()
        # Inside a transaction nobody else can have a turn.
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
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Ticket:
        """Put one message; cancelled, it is in doubt like one that timed out, or was not put at all."""
        if wait is True and transaction is None:
            # It always waits; and puts that are begun one after the other must not overtake each other here.
            return await self._run(self._calls.puts.put(topic, body, key, headers, timeout), breathes=False)
        if wait is False and transaction is None:
            await self._breathe()
            now = guarded(self._session, self._calls.puts.put_now, topic, body, key, headers, timeout)
            if now is not None:
                return now
        beside = beside_one(key, headers)
        (row,) = await self._run(self._calls.puts.put_many(topic, (body,), timeout, transaction, wait, *beside))
        return Ticket(row)

    async def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[bytes] = (),
        headers: Sequence[Headers | None] = (),
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Put messages in order, in one commit."""
        flow = self._calls.puts.put_many(topic, bodies, timeout, transaction, wait, keys, headers)
        return counters(await self._run(flow))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> AsyncPublisher:
        """Put messages one at a time and send them in batches; `async with` flushes at its end."""
        return AsyncPublisher(
            Publisher(self._held, self._run, topic, records=records, size=size, linger=linger), self._held, self._run
        )

    async def flush(self, timeout: float | None = None) -> None:
        """Finish every unfinished put."""
        await self._run(self._calls.puts.flush(timeout))

    async def subscribe(self, topic: str, *, fresh: bool = False, timeout: float | None = None) -> None:
        """Receive what is put on a topic from now on, or go on with what waits; `fresh`: begin at the end."""
        await self._run(self._calls.subscribing.intend(topic, True, timeout, fresh=fresh))

    async def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive nothing more of a topic."""
        await self._run(self._calls.subscribing.intend(topic, False, timeout))

    async def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """The next message, or None where nothing came in time."""
        self._check_free(topic)
        batch = await self._run(self._calls.gets.get_many(topic, 1, timeout))
        return batch[0] if batch else None

    async def get_many(
        self,
        topic: str,
        max: int = RECEIVE_MAX,  # noqa: A002
        timeout: float | None = None,
    ) -> Batch:
        """As many of the next messages as are here, up to `max`."""
        self._check_free(topic)
        return await self._run(self._calls.gets.get_many(topic, max, timeout))

    async def messages(self, topic: str, timeout: float | None = None) -> AsyncIterator[Message]:
        """Message after message, until none comes for `timeout` seconds; None: without end."""
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
                guarded(calls.session, calls.gets.end_chunk, topic, chunk)

    async def process(
        self,
        topic: str | Sequence[str],
        handler: AsyncHandler,
        timeout: float | None = None,
        max: int = PROCESS_MAX,  # noqa: A002
    ) -> int:
        """Hand messages to a handler, each once: its effect, its puts and the position commit together or not at all.

        `handler(message, transaction)` is an `async def` function or a plain one; what it returns is awaited. It may
        await whatever it likes until it first uses its transaction, which begins then: from there on it must not wait
        for anything else, or everybody would wait for it, and is rolled back and raised a CallerError if it does
        (`await client.put(…, transaction=transaction)` never waits). Await first, then read and write.

        While a handler awaits, other coroutines use the client as they like; only calls that take from the same topic
        wait until it has returned. Where the topic is unsubscribed, or the client closed, meanwhile, nothing of the
        handler's happens. Cancelled, the handler sees the CancelledError at its `await`, and where it lets it through,
        it is rolled back: the message comes again, and the attempt does not count. It does not count either where a
        handler is of a kind that cannot work (a generator), or waits with its transaction open.

        Args:
            topic: one that is subscribed to, or several of them, which have their turns: see `Client.process`.
            handler: called for one message after another.
            timeout: for the first message, in seconds; None: the client's.
            max: messages to take at most; never more than are here.

        Returns:
            How many were taken, dead letters included; 0 where nothing came in time.

        Raises:
            As `Client.process`.
        """
        check_handler(handler, awaits=True)
        check_count("max", max)
        topics, session, gets = check_topics(topic), self._session, self._calls.gets
        self._check_free(*topics)
        processing = Processing(session, gets)
        started = session.now
        until = session.until(timeout, started)
        while True:
            ready = await self._run(gets.first_of(topics, started, until))
            turns = Turns(gets, topics, ready, max)
            for sub, number in turns:
                try:
                    turns.taken += await processing.batch(sub, handler, number, self._breathe, awaits=True)
                except BaseException:
                    session.recover(handled=True)
                    raise
            if turns.taken or not ready:
                return turns.taken

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
        """Have a service do something once, and wait for its reply; cancelled, the call goes on as after a time-out."""
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
        """Make a call and wait for nothing; its ID."""
        named = id, key, headers, deadline, parts, transaction
        return await self._run(self._calls.calling.request(service, body, timeout, *named))

    async def reply(self, id: str, *, timeout: float | None = None) -> Reply:  # noqa: A002
        """Wait for the reply to a call."""
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
    ) -> int:
        """Be the worker of a service; the handler is an `async def` function or a plain one, as that of `process`.

        Calls are handled one after another. Cancelled, the handler is rolled back and the call comes again.
        """
        check_handler(handler, awaits=True)
        if max is not None:
            check_count("max", max)
        calls = self._calls
        session = calls.session
        serving = AsyncServing(session, calls.gets, calls.subscribing, service, part, parts)
        self._check_free(serving.topic)
        session.until(timeout)
        await self._run(serving.begin_serving())
        while (left := serving.left(max)) > 0:
            sub = await self._run(serving.next(inf if timeout is None else session.now + timeout))
            if sub is None:
                break
            try:
                await serving.batch(sub, serving.wrapped(handler), left, self._breathe, awaits=True)
            except TryLater as later:
                await self._run(serving.pause(later.seconds))
            except BaseException:
                session.recover(handled=True)
                raise
        return serving.served

    async def withdraw(self, service: str, *, timeout: float | None = None, part: int = 0, parts: int = 1) -> None:
        """Be a service's worker no more."""
        await self._run(self._calls.subscribing.withdraw(service, part, parts, timeout))

    def _check_free(self, *topics: str) -> None:
        """See that this is not a handler that waits for itself."""
        for topic in topics:
            sub = self._session.core.subscriptions.get(check_topic(topic))
            if sub is not None and sub.busy is not None and sub.busy() is asyncio.current_task():
                raise CallerError(f"this handler has a message of {topic} in hand; it takes the next one by returning")

    async def close(self) -> None:
        """Fsync, acknowledge, and release everything; what is unfinished is kept. A cancellation waits for its end."""
        calls = self._held.last()
        with suppress(StorageError):  # The other thread tries it once more, and raises it.
            guarded(calls.session, calls.close_here)
        closing = asyncio.ensure_future(asyncio.to_thread(calls.close, ACKNOWLEDGE_SECONDS))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])  # A fifth of a second; the next client of that name finds the state free.
            raise

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


guards(AsyncClient._run)
runs_handlers(AsyncClient.process)
runs_handlers(AsyncClient.serve)
