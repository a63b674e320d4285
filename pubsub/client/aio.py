"""The client for asyncio: the same calls over the same session, with futures in place of threads that wait.

The Messenger's thread drives the sockets; whenever it has made a turn it looks at what the coroutines wait for and
wakes those whose time has come. What a call takes it takes after its last `await`, so a call that is cancelled has
taken nothing. Commits are made on the event loop's thread: tens of microseconds each, and a disk's fsync for
`subscribe`, `transaction` and a client that is power_safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from math import inf
from pathlib import Path
from random import Random
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pubsub.base import forks
from pubsub.client import leaving
from pubsub.client.arguments import check_count, check_path, check_surroundings
from pubsub.client.client import ACKNOWLEDGE_SECONDS, counters, make_settings
from pubsub.client.core.message import Batch, Message
from pubsub.client.dead_letters import DeadLetter, dead_letters
from pubsub.client.export import export_client
from pubsub.client.flows.awaiting import AsyncProcessing
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow, Result, Wait
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.processing import PROCESS_MAX, AsyncHandler, check_handler
from pubsub.client.guards import guards
from pubsub.client.publisher import BatchTicket, Publisher
from pubsub.client.session import Session
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError, PubsubError
from pubsub.protocol import check_topic

if TYPE_CHECKING:
    import zmq

    from pubsub.base.clock import Clock
    from pubsub.client.storage.recorder import RecordSink

BREATH_SECONDS: Final = 0.005
"""Calls that find all they want without waiting let other coroutines have their turn so often."""


class AsyncPublisher:
    """Messages of one topic in batches; made by `AsyncClient.publisher`."""

    def __init__(
        self, publisher: Publisher, calls: Calls, run: Callable[[Flow[Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self._publisher, self._calls, self._run = publisher, calls, run

    async def put(self, body: bytes) -> BatchTicket:
        """Put one message; waits only where a window of batches is unfinished; cancelled then, it has put."""
        ticket = self._publisher.add(body)
        if self._publisher.crowded:
            await self._run(self._publisher.room())
        return ticket

    async def flush(self, timeout: float | None = None) -> None:
        """Send the open batch and wait until everything put so far is on the server's disk."""
        self._publisher.close_batch()
        await self._run(self._calls.puts.flush_topic(self._publisher.topic, timeout))

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


class AsyncClient:
    """A durable client for asyncio; every call does what `Client`'s of that name does, and raises as it does.

    Args: as `Client`'s. Opening it reads the disk; so `async with AsyncClient(…)` blocks for some milliseconds.
    """

    def __init__(
        self,
        name: str,
        *,
        proxies: Sequence[str] | None = None,
        proxies_file: Path | str | None = None,
        directory: Path | str | None = None,
        power_safe: bool | None = None,
        timeout: float | None = None,
        settings: ClientSettings | None = None,
        recorder: RecordSink | Path | str | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        boot: str | None = None,
    ) -> None:
        check_surroundings(recorder, clock, random, boot)
        made = make_settings(settings, proxies, proxies_file, directory, power_safe, timeout)
        self._session = Session(name, made, context=context, clock=clock, random=random, boot=boot, record=recorder)
        self._calls = Calls(self._session)
        leaving.opened(self._calls)
        self._processing = AsyncProcessing(self._session, self._calls.gets)
        self._breathed = 0.0

    @property
    def name(self) -> str:
        """The client ID."""
        return self._session.name

    @property
    def settings(self) -> ClientSettings:
        """What it may do."""
        return self._session.settings

    @property
    def path(self) -> Path:
        """The file of its state."""
        return Path(self._session.store.path)

    @property
    def publisher_id(self) -> str:
        """Who its messages come from, as subscribers see it: `client ID/store ID`."""
        return f"{self._session.name}/{self._session.core.publisher}"

    @property
    def record_problem(self) -> str:
        """Why the record lacks something at present; "" where it does not, or there is none."""
        recorder = self._session.recorder
        return "" if recorder is None else recorder.problem

    async def _run(self, flow: Flow[Result]) -> Result:
        """Drive a call. Between its last `await` and its return it takes and commits, so a cancellation takes nothing.

        What is awaited ends with a cancellation wherever that strikes. `asyncio.wait_for` is not used: on Python 3.11
        it returns, as if nothing had been, where the cancellation comes in the same turn of the loop as the result.
        """
        try:
            await self._breathe()
            wait = next(flow)
            while True:
                wait = flow.send(await self._wait(wait))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except BaseException:
            flow.close()
            self._session.recover()
            raise

    async def _breathe(self) -> None:
        """Let others have their turn, and a cancellation its effect, where calls find all they want without waiting."""
        now = monotonic()
        # Inside a transaction nobody else can have a turn.
        if now - self._breathed >= BREATH_SECONDS and self._session.owner != get_ident():
            self._breathed = now
            await asyncio.sleep(0)

    async def _wait(self, wait: Wait) -> bool:
        loop, session = asyncio.get_running_loop(), self._session
        future: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not future.done():
                future.set_result(None)

        def look() -> None:
            if wait.done() and look in session.watchers:
                session.watchers.remove(look)
                with suppress(RuntimeError):  # The loop was closed, and nobody waits any more.
                    loop.call_soon_threadsafe(finish)

        with session.lock:
            session.watchers.append(look)
            look()
        left = wait.deadline - session.now
        timer = loop.call_later(max(0.0, left), finish) if left < inf else None
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            with session.lock:
                if look in session.watchers:
                    session.watchers.remove(look)
        self._breathed = monotonic()
        return wait.done()

    async def put(
        self,
        topic: str,
        body: bytes,
        *,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Ticket:
        """Put one message; cancelled, it is in doubt like one that timed out."""
        (row,) = await self._run(self._calls.puts.put_many(topic, (body,), timeout, transaction, wait))
        return Ticket(row)

    async def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Put messages in order, in one commit."""
        return counters(await self._run(self._calls.puts.put_many(topic, bodies, timeout, transaction, wait)))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> AsyncPublisher:
        """Put messages one at a time and send them in batches; `async with` flushes at its end."""
        return AsyncPublisher(
            Publisher(self._calls, self._run, topic, records=records, size=size, linger=linger), self._calls, self._run
        )

    async def flush(self, timeout: float | None = None) -> None:
        """Finish every unfinished put."""
        await self._run(self._calls.puts.flush(timeout))

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic."""
        return guarded(self._session, self._calls.puts.discard, topic)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One commit around a `with` block, which must not await anything but `put(…, transaction=…)`."""
        return self._calls.puts.transaction()

    def unfinished(self, topic: str) -> int:
        """How many messages on a topic are put and not known to be on the server's disk."""
        return guarded(self._session, self._calls.puts.unfinished, topic)

    async def subscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive what is put on a topic from now on."""
        await self._run(self._calls.subscribing.intend(topic, True, timeout))

    async def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive nothing more of a topic."""
        await self._run(self._calls.subscribing.intend(topic, False, timeout))

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        """By topic: `on`, `settled`, `position`."""
        return guarded(self._session, self._calls.subscribing.subscriptions)

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
            found = await self._run(self._calls.gets.get_on(topic, timeout))
            if found is None:
                return
            batch, chunk = found
            try:
                for _, message in zip(chunk.claims(), batch, strict=False):
                    yield message
            finally:
                guarded(self._session, self._calls.gets.end_chunk, topic, chunk)

    async def process(
        self,
        topic: str,
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
            topic: one that is subscribed to.
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
        self._check_free(topic)
        until = self._calls.session.until(timeout)
        while True:
            left = until - self._session.now
            sub = await self._run(self._calls.gets.available(topic, left if left > 0 else 0.0))
            if sub is None:
                return 0
            try:
                taken = await self._processing.batch(sub, handler, max, self._breathe)
            except BaseException:
                self._session.recover()
                raise
            if taken:
                return taken

    def _check_free(self, topic: str) -> None:
        """See that this is not a handler that waits for itself."""
        sub = self._session.core.subscriptions.get(check_topic(topic))
        if sub is not None and sub.busy is not None and sub.busy() is asyncio.current_task():
            raise CallerError(f"this handler has a message of {topic} in hand; it takes the next one by returning")

    def dead_letters(self, topic: str | None = None) -> list[DeadLetter]:
        """What could not be handled or handed out."""
        return guarded(self._session, dead_letters, self._session, topic)

    def export(self, directory: Path | str) -> Path:
        """Write the state as files; the directory of the client. Raises as `Client.export`."""
        return export_client(self._session, check_path("directory", directory))

    def renew(self, *, keep: bool = True) -> None:
        """Make a state directory that was copied usable again."""
        guarded(self._session, self._calls.renew, keep=keep)

    async def close(self) -> None:
        """Fsync, acknowledge, and release everything; what is unfinished is kept. A cancellation waits for its end."""
        guarded(self._session, self._calls.close_here)
        closing = asyncio.ensure_future(asyncio.to_thread(self._calls.close, ACKNOWLEDGE_SECONDS))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])  # A fifth of a second; the next client of that name finds the state free.
            raise

    def __del__(self) -> None:
        leaving.collected(getattr(self, "_calls", None))

    def __reduce__(self) -> NoReturn:
        forks.no_pickling(f"client {self.name}")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


guards(AsyncClient._run)
