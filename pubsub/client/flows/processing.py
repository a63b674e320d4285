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

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Final
from weakref import ref

import apsw

from pubsub.client.arguments import check_count
from pubsub.client.core.changes import Change
from pubsub.client.core.message import Message
from pubsub.client.core.outcomes import Later, Reject
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import ALL, check_hold
from pubsub.client.flows.attempts import Attempt, Attempts
from pubsub.client.flows.awaiting import HandlerTransaction, Watched
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.handlers import AsyncHandler, Handler, check_handler, check_result
from pubsub.client.flows.turns import Turns, check_topics
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused, Interrupted, StorageError

PROCESS_MAX: Final = 1_000
"""Most messages that `process` takes if the caller names no number."""

HELD_SECONDS: Final = 0.01
"""Longest time for which the puts of a handler wait for an fsync that also covers those of the next messages."""

DISK_ERRORS: Final = (StorageError, apsw.FullError, apsw.IOError, apsw.CorruptError)
"""Errors out of a handler that the disk caused, not the handler."""

_log: Final = logging.getLogger("pubsub.client")


class Processing(Attempts):
    """The call `process` on one session, for plain handlers and for handlers with an awaited result."""

    def process(
        self, topics: str | Sequence[str], handler: Handler, timeout: float | None, most: int, hold: str = ALL
    ) -> Flow[int]:
        """Pass up to `most` messages to a handler, each in its own transaction; return the number taken."""
        check_handler(handler, awaits=False)
        check_count("max", most)
        check_hold(hold)
        named, started = check_topics(topics), self.session.now
        until = self.session.until(timeout, started)
        while True:
            ready = yield from self.gets.first_of(named, started, until, hold)
            turns = Turns(self.gets, named, ready, most, hold)
            for sub, number in turns:
                turns.taken += self.handle_batch(sub, handler, number, hold)
            if turns.taken or not ready:
                return turns.taken

    def handle_batch(self, sub: Subscription, handler: Handler, most: int, hold: str = ALL) -> int:
        """Pass up to `most` messages that are here to a plain handler; 0 if all of them are duplicates."""
        running = self.batch(sub, handler, most, _breathe, awaits=False, hold=hold)
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
        hold: str = ALL,
    ) -> int:
        """Pass up to `most` messages that are here to a handler; 0 if all of them are duplicates.

        Args:
            handler: a plain function, or one with a result to await.
            breathe: awaited between two messages.
            awaits: True if a task of the event loop runs it and may await; otherwise this thread runs it.
            hold: what waits behind a message that waits.
        """
        if awaits:
            from asyncio import current_task  # noqa: PLC0415  a client on threads does not load asyncio

            held_by: object = current_task()
        else:
            held_by = Hand(get_ident())
        ours, taken, found = ref(held_by), 0, None
        try:
            while taken < most:
                with self.session.entered():
                    if sub.busy is ours:  # From the previous message.
                        sub.busy = None
                        self.send_due()
                    found = None if sub.busy else self.begin(sub, hold, first=not taken, more=taken + 1 < most)
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
            if self.session.is_cut_off:
                raise error
            if attempt.sub.fence.emptied != attempt.emptied:
                if not isinstance(error, Later | Reject):
                    raise error
                attempt.settled = True  # What it asked for concerns a message that this client has no more.
                self._let_go(attempt.sub)
                return 0
            with self.session.entered():
                attempt.settled = True
                return self.failed(attempt, error)

    def _uncount(self, attempt: Attempt) -> None:
        with self.session.lock:
            if not self.session.is_cut_off:
                with suppress(Interrupted), self.session.entered():
                    self.uncount(attempt)

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
