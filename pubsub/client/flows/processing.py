"""Handing messages to a handler: its effect, its puts and the position in one commit, or nothing of it.

An attempt is counted before the handler runs, so that a message that ends the process every time is found out. It is
taken back where the handler was at no fault: it was cancelled or interrupted (Ctrl-C, and whatever else is no
`Exception`), is of a kind that a call does not run, or the disk failed. Until its handler has returned a message is in
hand: other calls on its topic wait for it, and calls on other topics go on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Final
from weakref import ref

import apsw

from pubsub.client.arguments import check_count
from pubsub.client.core.changes import Buried, Change, Tried
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.awaiting import HandlerTransaction, Watched
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.turns import Turns, check_topics
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused, Interrupted, PubsubError, StorageError
from pubsub.protocol import Position

Handler = Callable[[Message, Transaction], None]
"""What `Client.process` calls: a plain function, whose result is not looked at."""

AsyncHandler = Callable[[Message, Transaction], Awaitable[None] | None]
"""What `AsyncClient.process` calls: an `async def` function, or a plain one."""

PROCESS_MAX: Final = 1_000
"""Messages that `process` takes at most where the caller names no number."""

HELD_SECONDS: Final = 0.01
"""Puts of a handler wait so long for the fsync that covers those of the next messages too."""

DISK_ERRORS: Final = (StorageError, apsw.FullError, apsw.IOError, apsw.CorruptError)
"""What comes out of a handler where the disk failed, not the handler."""

_log: Final = logging.getLogger("pubsub.client")


@dataclass(slots=True)
class Attempt:
    """One message that is about to be handled.

    Attributes:
        number: which attempt it is, from 1.
        emptied: how often the prefetch had been thrown away; where it was since, the message is not ours any more.
        following: the position of the message behind it, where that is here; its first attempt is counted ahead.
        settled: it counts, or was taken back: nothing of it is left to do.
    """

    sub: Subscription
    taking: Taking
    message: Message
    number: int
    emptied: int
    following: Position | None = None
    settled: bool = False


def check_handler(handler: object, *, awaits: bool) -> None:
    """See that calling a handler runs it, as far as that can be seen before it is called.

    Args:
        handler: a function, a partial, or an object with `__call__`.
        awaits: whether what it returns is awaited.

    Raises:
        CallerError: it cannot be called; HandlerMisused: nothing of it would run.
    """
    if not callable(handler):
        raise CallerError(f"handler is a function of (message, transaction), not {type(handler).__name__}")
    called = getattr(type(handler), "__call__", None)  # noqa: B004 - its kind is looked at, not whether it is there.
    if inspect.isgeneratorfunction(handler) or inspect.isgeneratorfunction(called):
        raise HandlerMisused("handler is a generator function (it has a yield), so a call runs nothing of it")
    if inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(called):
        raise HandlerMisused("handler is an async generator function (it has a yield), so a call runs nothing of it")
    if not awaits and (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)):
        raise HandlerMisused("handler is an async def function, which Client cannot await; AsyncClient.process does")


def check_result(result: object, *, awaits: bool) -> None:
    """See that a handler ran when it was called; what did not is closed.

    Raises:
        HandlerMisused: it has only returned what is still to run.
    """
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HandlerMisused("the handler returned a generator, so nothing of it has run; it was rolled back")
    if not awaits and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise HandlerMisused(
            "the handler returned an awaitable, which Client cannot await, so it was rolled back; "
            "AsyncClient.process awaits it"
        )


class Processing:
    """The calls `process` on one session, for handlers that are plain functions, and for those that are awaited."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self.session, self.gets = session, gets

    def process(self, topics: str | Sequence[str], handler: Handler, timeout: float | None, most: int) -> Flow[int]:
        """Hand up to `most` messages to a handler, each in a transaction of its own; how many were taken."""
        check_handler(handler, awaits=False)
        check_count("max", most)
        named, started = check_topics(topics), self.session.now
        until = self.session.until(timeout, started)
        while True:
            ready = yield from self.gets.first_of(named, started, until)
            turns = Turns(self.gets, named, ready, most)
            for sub, number in turns:
                turns.taken += self.handle_batch(sub, handler, number)
            if turns.taken or not ready:
                return turns.taken

    def handle_batch(self, sub: Subscription, handler: Handler, most: int) -> int:
        """Hand messages that are here to a plain handler, up to `most`; 0 where all had been taken before."""
        running = self.batch(sub, handler, most, _breathe, awaits=False)
        try:
            running.send(None)
        except StopIteration as stop:
            taken: int = stop.value
            return taken
        raise AssertionError("a plain handler awaits nothing")

    async def batch(
        self,
        sub: Subscription,
        handler: AsyncHandler,
        most: int,
        breathe: Callable[[], Awaitable[None]],
        *,
        awaits: bool,
    ) -> int:
        """Hand messages that are here to a handler, up to `most`; 0 where all had been taken before.

        Args:
            sub: where there is something.
            handler: plain, or one that is awaited.
            most: how many messages.
            breathe: awaited between two of them.
            awaits: the event loop's task runs it, which may await; otherwise this thread does.
        """
        held_by: object = asyncio.current_task() if awaits else Hand(get_ident())
        ours, taken, found = ref(held_by), 0, None
        try:
            while taken < most:
                with self.session.entered():
                    if sub.busy is ours:  # The message before.
                        sub.busy = None
                        self.send_due()
                    found = None if sub.busy else self.begin(sub, first=not taken, more=taken + 1 < most)
                    if isinstance(found, Attempt):
                        sub.busy = ours
                if found is None:
                    break
                if isinstance(found, int):
                    taken += found
                    continue
                taken += await self._attempt(found, handler, awaits=awaits)
                if awaits:
                    self._let_go(sub)
                    await breathe()
        finally:
            if sub.busy is ours:  # An exception struck anywhere since it was taken in hand.
                try:
                    if isinstance(found, Attempt) and not found.settled:
                        self._uncount(found)
                finally:
                    sub.busy = None  # Here: another exception may strike as soon as anything is called.
                    self._let_go(sub)
            elif taken:
                self.session.tell_waiting()
            self.send_held()
        return taken

    def _let_go(self, sub: Subscription) -> None:
        """The message is in nobody's hand any more."""
        session = self.session
        session.handlers.discard(get_ident())  # An exception may have struck just before that.
        with session.lock:
            sub.busy = None
            if not session.is_cut_off:
                with suppress(Interrupted), session.entered():
                    self.send_due()
            session.tell_waiting()

    def begin(self, sub: Subscription, *, first: bool, more: bool) -> Attempt | int | None:
        """Count an attempt at the next message. The lock is held.

        Args:
            sub: where it is.
            first: the call has taken none yet, so it raises what was lost in front.
            more: the call may take another one behind it.

        Returns:
            The attempt, or how many messages were taken without one; None where there is none.
        """
        if not sub.intent.on or not sub.available:
            return None
        self.gets.close_chunk(sub)
        taking = sub.take(1)
        if isinstance(taking, Loss):
            if not first:
                return None  # The next call raises it.
            self.gets.bury_loss(sub, taking)
        assert isinstance(taking, Taking)
        if not taking.pieces:
            self.gets.took(sub, taking, fsynced=self.session.commit(taking.change(sub.topic)))
            return 0
        message = next(iter(Batch(sub.topic, taking.pieces)))
        if self.settles(sub, taking, message):
            return 1
        most = self.session.settings.handler_attempts
        number = sub.cursor.attempt(message.position)
        if number > most:
            attempt = Attempt(sub, taking, message, most, sub.fence.emptied)
            self.bury(attempt, f"the process ended in the handler {most} times")
            return 1
        self.session.trying[sub.topic] = ((message.position, number),)
        if not (sub.cursor.counted_ahead and sub.cursor.tried == message.position):
            self.session.commit([Tried(sub.topic, message.position, number)])
        sub.cursor.attempted(message.position, number)
        following = sub.prefetch.following(taking) if more else None
        return Attempt(sub, taking, message, number, sub.fence.emptied, following)

    def settles(self, sub: Subscription, taking: Taking, message: Message) -> bool:
        """Whether a message was taken without its handler. The lock is held."""
        return False

    def _call(self, handler: AsyncHandler, message: Message, transaction: Transaction, *, awaits: bool) -> object:
        """Call a handler. The thread of a plain one may put by its transaction only meanwhile."""
        if awaits:
            return handler(message, transaction)
        handlers = self.session.handlers
        try:
            handlers.add(get_ident())
            return handler(message, transaction)
        finally:
            handlers.discard(get_ident())

    async def _attempt(self, attempt: Attempt, handler: AsyncHandler, *, awaits: bool) -> int:
        sub = attempt.sub

        def changes() -> Sequence[Change]:
            if sub.fence.emptied != attempt.emptied or not sub.intent.on:
                raise CallerError(f"the subscription to {sub.topic} changed while a message was handled; rolled back")
            return self.changes(attempt)

        transaction = HandlerTransaction(self.session, changes)
        try:
            result = self._call(handler, attempt.message, transaction, awaits=awaits)
            check_result(result, awaits=awaits)
            if inspect.isawaitable(result):
                await Watched(result, transaction, self.send_held)
            transaction.check_open()
        except DISK_ERRORS as error:
            transaction.roll_back(error=error)
            raise
        except HandlerMisused:
            transaction.roll_back()
            raise
        except Exception as error:
            transaction.roll_back()
            # The transaction was misused, and the handler raised another error because of that.
            if transaction.problem:
                raise HandlerMisused(transaction.problem) from error
            return self._fail(attempt, error)
        except BaseException as error:
            # Without an event loop this may be anywhere within the garbage collection, where nothing is committed.
            attempt.settled = isinstance(error, GeneratorExit)
            transaction.roll_back()
            raise
        try:
            transaction.commit(lambda: self.handled(attempt))
        except apsw.ConstraintError as error:  # One that is looked at when all ends, as a deferred foreign key.
            return self._fail(attempt, error)
        return 1

    def _fail(self, attempt: Attempt, error: Exception) -> int:
        """The handler is at fault, and its transaction is rolled back: as `failed`, where the message is still ours."""
        with self.session.lock:
            if self.session.is_cut_off or attempt.sub.fence.emptied != attempt.emptied:
                raise error
            with self.session.entered():
                attempt.settled = True
                return self.failed(attempt, error)

    def _uncount(self, attempt: Attempt) -> None:
        with self.session.lock:
            if not self.session.is_cut_off:
                with suppress(Interrupted), self.session.entered():
                    self.uncount(attempt)

    def changes(self, attempt: Attempt) -> list[Change]:
        """What is committed with the handler's own: the position, and an attempt at the message behind it."""
        following = attempt.following
        self.session.trying[attempt.sub.topic] = ((attempt.message.position, attempt.number), (following, 1))
        ahead: list[Change] = [Tried(attempt.sub.topic, following, 1)] if following is not None else []
        return [*attempt.taking.change(attempt.sub.topic), *ahead]

    def handled(self, attempt: Attempt) -> None:
        """The handler's transaction is committed. The lock is held."""
        sub, attempt.settled = attempt.sub, True
        self.gets.took(sub, attempt.taking, fsynced=self.session.settings.power_safe)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True)
        if attempt.following is not None:
            sub.cursor.attempted(attempt.following, 1, ahead=True)

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """The handler raised, and its transaction is rolled back. The lock is held.

        Returns:
            1 where the message went to the dead letters; else the error is raised.
        """
        topic, message, number = attempt.sub.topic, attempt.message, attempt.number
        self.session.counters["handler_errors"] += 1
        self.session.trying.pop(topic, None)
        _log.warning("handler failed on %s of %s, attempt %d: %r", message.id, topic, number, error)
        if number < self.session.settings.handler_attempts:
            self.session.let_pass(error)
            raise error
        self.bury(attempt, f"{type(error).__name__}: {error}")
        return 1

    def uncount(self, attempt: Attempt) -> None:
        """The attempt was not the handler's fault and does not count. The lock is held."""
        sub, session = attempt.sub, self.session
        if session.closed or sub.fence.emptied != attempt.emptied:
            return
        try:
            session.commit([Tried(sub.topic, attempt.message.position, attempt.number - 1)])
        except PubsubError as error:
            _log.warning("client %s: %s", session.name, error)  # It counts, then.
            return
        sub.cursor.attempted(attempt.message.position, attempt.number - 1)

    def bury(self, attempt: Attempt, error: str) -> None:
        """Take a message to the dead letters. The lock is held."""
        sub, message, number = attempt.sub, attempt.message, attempt.number
        letter = Buried(
            sub.topic, message.id, message.id, message.publisher, message.counter, message.stamp, message.body, error,
            number, self.session.clock.wall(), message.key, message.header_bytes,
        )  # fmt: skip
        self.session.commit([*attempt.taking.change(sub.topic), letter])
        self.gets.took(sub, attempt.taking, fsynced=True)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True, result="dead_letter")
        _log.error("%s of %s goes to the dead letters after %d attempts: %s", message.id, sub.topic, number, error)

    def send_due(self) -> None:
        """Send what is due, and what handlers put once it has waited for long enough. The lock is held."""
        session = self.session
        if session.held_since is not None and session.now - session.held_since >= HELD_SECONDS:
            session.sync()
        session.send()

    def send_held(self) -> None:
        """Fsync what handlers put, and send it; where the disk refuses, the next fsync does it."""
        session = self.session
        if session.over or (session.recorder is None and session.held_since is None):
            return
        with suppress(CallerError), session.entered():  # The client was closed, or one of its steps cut off, meanwhile.
            if session.recorder is not None:
                session.recorder.flush()
            if session.held_since is not None:
                try:
                    session.sync()
                except StorageError as error:
                    _log.warning("client %s: %s", session.name, error)
                session.follow()


class Hand:
    """A thread's hand, in which a message is.

    Args:
        thread: its number.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread


async def _breathe() -> None:
    """Give nobody a turn: other threads have theirs anyway."""
