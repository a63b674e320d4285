"""Pass messages to a handler: its effect, its puts and the position are one commit, or nothing happens.

An attempt is counted before the handler runs, so that a message that always ends the process is detected. The count is
taken back if the handler was not at fault:

* A cancellation or an interrupt ended it: Ctrl-C, or any other exception that is not an `Exception`.
* The handler is of a kind that cannot run.
* The disk failed.

A message is in hand until its handler returns. During that time other calls on its topic wait, and calls on other
topics continue.

The rules are those of docs/explanation/get.md, G8 and G9; docs/explanation/looking-back.md, Z3.
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

from pubsub.base.handler_errors import located, one_line
from pubsub.client.arguments import check_count
from pubsub.client.core.changes import Change, DeadLettered, Tried
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
"""Type of the handlers of `Client.process`: a plain function. Its result is ignored."""

AsyncHandler = Callable[[Message, Transaction], Awaitable[None] | None]
"""Type of the handlers of `AsyncClient.process`: an `async def` function, or a plain one."""

PROCESS_MAX: Final = 1_000
"""Most messages that `process` takes if the caller names no number."""

HELD_SECONDS: Final = 0.01
"""Longest time for which the puts of a handler wait for an fsync that also covers those of the next messages."""

DISK_ERRORS: Final = (StorageError, apsw.FullError, apsw.IOError, apsw.CorruptError)
"""Errors out of a handler that the disk caused, not the handler."""

_log: Final = logging.getLogger("pubsub.client")


@dataclass(slots=True)
class Attempt:
    """One attempt to handle a message.

    Attributes:
        number: number of the attempt, from 1.
        emptied: `Fence.emptied` at the start. If it has changed, the message no longer belongs to this client.
        replay: number of the replay that the message belongs to.
        following: position of the next message if it is here; its first attempt is counted ahead.
        settled: True if the attempt was counted or taken back, and needs no more work.
    """

    sub: Subscription
    taking: Taking
    message: Message
    number: int
    emptied: int
    replay: int
    following: Position | None = None
    settled: bool = False


def check_handler(handler: object, *, awaits: bool) -> None:
    """Check, before a call, that calling a handler would run it.

    Args:
        handler: a function, a partial, or an object with `__call__`.
        awaits: True if its result is awaited.

    Raises:
        CallerError: it cannot be called.
        HandlerMisused: a call would run none of its code.
    """
    if not callable(handler):
        raise CallerError(f"handler is a function of (message, transaction), not {type(handler).__name__}")
    called = getattr(type(handler), "__call__", None)  # noqa: B004 - the kind of function matters, not its presence.
    if inspect.isgeneratorfunction(handler) or inspect.isgeneratorfunction(called):
        raise HandlerMisused("handler is a generator function (it has a yield), so a call runs nothing of it")
    if inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(called):
        raise HandlerMisused("handler is an async generator function (it has a yield), so a call runs nothing of it")
    if not awaits and (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)):
        raise HandlerMisused("handler is an async def function, which Client cannot await; AsyncClient.process does")


def check_result(result: object, *, awaits: bool) -> None:
    """Check, after a call, that the handler ran; close a coroutine that did not.

    Raises:
        HandlerMisused: the handler returned an object that has yet to run.
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
    """The call `process` on one session, for plain handlers and for handlers with an awaited result."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self.session, self.gets = session, gets

    def process(self, topics: str | Sequence[str], handler: Handler, timeout: float | None, most: int) -> Flow[int]:
        """Pass up to `most` messages to a handler, each in its own transaction; return the number taken."""
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
        """Pass up to `most` messages that are here to a plain handler; 0 if all of them are duplicates."""
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
        """Pass up to `most` messages that are here to a handler; 0 if all of them are duplicates.

        Args:
            sub: a subscription with something to take.
            handler: a plain function, or one with a result to await.
            most: most messages to take.
            breathe: awaited between two messages.
            awaits: True if a task of the event loop runs it and may await; otherwise this thread runs it.
        """
        held_by: object = asyncio.current_task() if awaits else Hand(get_ident())
        ours, taken, found = ref(held_by), 0, None
        try:
            while taken < most:
                with self.session.entered():
                    if sub.busy is ours:  # From the previous message.
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
            if sub.busy is ours:  # An exception came at any point since the message was taken in hand.
                try:
                    if isinstance(found, Attempt) and not found.settled:
                        self._uncount(found)
                finally:
                    sub.busy = None  # Before any call: another exception may come within one.
                    self._let_go(sub)
            elif taken:
                self.session.tell_waiting()
            self.send_held()
        return taken

    def _let_go(self, sub: Subscription) -> None:
        """Mark that no message of the topic is in hand any more."""
        session = self.session
        session.handlers.discard(get_ident())  # An exception may have come just before the handler's own discard.
        with session.lock:
            sub.busy = None
            if not session.is_cut_off:
                with suppress(Interrupted), session.entered():
                    self.send_due()
            session.tell_waiting()

    def begin(self, sub: Subscription, *, first: bool, more: bool) -> Attempt | int | None:
        """Count an attempt at the next message. The lock is held.

        Args:
            sub: its subscription.
            first: True if the call has taken no message yet, so it may raise a loss in front.
            more: True if the call may take another message after this one.

        Returns:
            The attempt, or the number of messages taken without one; None if there is no message.
        """
        if not sub.intent.on or not sub.available:
            return None
        self.gets.close_chunk(sub)
        taking = sub.take(1)
        if isinstance(taking, Loss):
            if not first:
                return None  # The next call raises it.
            self.gets.dead_letter_loss(sub, taking)
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
            attempt = Attempt(sub, taking, message, most, sub.fence.emptied, sub.intent.replay)
            self.dead_letter(attempt, f"the process ended in the handler {most} times")
            return 1
        self.session.trying[sub.topic] = ((message.position, number),)
        if not (sub.cursor.counted_ahead and sub.cursor.tried == message.position):
            self.session.commit([Tried(sub.topic, message.position, number)])
        sub.cursor.attempted(message.position, number)
        following = sub.prefetch.following(taking) if more else None
        return Attempt(sub, taking, message, number, sub.fence.emptied, sub.intent.replay, following)

    def settles(self, sub: Subscription, taking: Taking, message: Message) -> bool:
        """Return True if a message was taken without its handler. The lock is held."""
        return False

    def _call(self, handler: AsyncHandler, message: Message, transaction: Transaction, *, awaits: bool) -> object:
        """Call a handler. While a plain handler runs, its thread may put only by its transaction."""
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
            if sub.intent.on and sub.intent.replay != attempt.replay:
                raise _Sought
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
            # Without an event loop, a GeneratorExit comes from garbage collection, during which nothing may commit.
            attempt.settled = isinstance(error, GeneratorExit)
            transaction.roll_back()
            raise
        try:
            transaction.commit(lambda: self.handled(attempt))
        except _Sought:  # Rolled back; the message comes again if the seek's start includes it.
            attempt.settled = True
            self._let_go(sub)
            return 0
        except apsw.ConstraintError as error:  # A constraint checked at the commit, such as a deferred foreign key.
            return self._fail(attempt, error)
        return 1

    def _fail(self, attempt: Attempt, error: Exception) -> int:
        """Handle the handler's error as `failed`, after the rollback, if the message still belongs to this client."""
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
        """Return the changes that commit with the handler's: the position, and an attempt at the next message."""
        following = attempt.following
        self.session.trying[attempt.sub.topic] = ((attempt.message.position, attempt.number), (following, 1))
        ahead: list[Change] = [Tried(attempt.sub.topic, following, 1)] if following is not None else []
        return [*attempt.taking.change(attempt.sub.topic), *ahead]

    def handled(self, attempt: Attempt) -> None:
        """Accept the commit of a handler's transaction. The lock is held."""
        sub, attempt.settled = attempt.sub, True
        self.gets.took(sub, attempt.taking, fsynced=self.session.settings.power_safe)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True)
        if attempt.following is not None:
            sub.cursor.attempted(attempt.following, 1, ahead=True)

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """Handle an exception of the handler, after the rollback. The lock is held.

        Returns:
            1 if the message went to the dead letters; otherwise the error is raised.
        """
        topic, message, number = attempt.sub.topic, attempt.message, attempt.number
        self.session.counters["handler_errors"] += 1
        self.session.trying.pop(topic, None)
        _log.warning("handler failed on %s of %s, attempt %d: %s", message.id, topic, number, located(error))
        _log.debug("handler failed on %s of %s", message.id, topic, exc_info=error)
        if number < self.session.settings.handler_attempts:
            self.session.let_pass(error)
            raise error
        self.dead_letter(attempt, f"{type(error).__name__}: {error}")
        return 1

    def uncount(self, attempt: Attempt) -> None:
        """Take back the count of an attempt that was not the handler's fault. The lock is held."""
        sub, session = attempt.sub, self.session
        if session.closed or sub.fence.emptied != attempt.emptied:
            return
        try:
            session.commit([Tried(sub.topic, attempt.message.position, attempt.number - 1)])
        except PubsubError as error:
            _log.warning("client %s: %s", session.name, error)  # The attempt then stays counted.
            return
        sub.cursor.attempted(attempt.message.position, attempt.number - 1)

    def dead_letter(self, attempt: Attempt, error: str) -> None:
        """Move a message to the dead letters. The lock is held."""
        sub, message, number = attempt.sub, attempt.message, attempt.number
        letter = DeadLettered(
            sub.topic, message.id, message.id, message.publisher, message.counter, message.stamp, message.body, error,
            number, self.session.clock.wall(), message.key, message.header_bytes,
        )  # fmt: skip
        self.session.commit([*attempt.taking.change(sub.topic), letter])
        self.gets.took(sub, attempt.taking, fsynced=True)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True, result="dead_letter")
        _log.error(
            "%s of %s goes to the dead letters after %d attempts: %s", message.id, sub.topic, number, one_line(error)
        )

    def send_due(self) -> None:
        """Send all due messages, and the puts of handlers after HELD_SECONDS. The lock is held."""
        session = self.session
        if session.held_since is not None and session.now - session.held_since >= HELD_SECONDS:
            session.sync()
        session.send()

    def send_held(self) -> None:
        """Fsync and send the puts of handlers; if the disk refuses, the next fsync covers them."""
        session = self.session
        if session.over or (session.recorder is None and session.held_since is None):
            return
        with suppress(CallerError), session.entered():  # The client was closed, or one of its steps interrupted.
            if session.recorder is not None:
                session.recorder.flush()
            if session.held_since is not None:
                try:
                    session.sync()
                except StorageError as error:
                    _log.warning("client %s: %s", session.name, error)
                session.follow()


class _Sought(Exception):
    """Another call began a replay of the topic while a message was handled."""


class Hand:
    """Mark of the thread that has a message in hand.

    Args:
        thread: the thread's number.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread


async def _breathe() -> None:
    """Do nothing: unlike coroutines, other threads run anyway."""
