"""Handlers that await: effect, puts and position in one commit, and nobody waits for the store meanwhile.

A client has one connection to its database, so a transaction that is open keeps everybody else out. A handler that
awaits may do so for long; therefore its transaction begins with its first use, and from then on it must not wait for
anything any more: await first, then read and write. One that does wait all the same is rolled back and told so at that
very `await`. Until its handler has returned a message is in hand: other calls on its topic wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol
from weakref import ref

from pubsub.client.core.changes import Change
from pubsub.client.core.outbox import Draft
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.processing import DISK_ERRORS, AsyncHandler, Attempt, Processing, check_result
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused, Interrupted, StorageError


class HandlerTransaction(Transaction):
    """A handler's transaction in a client for asyncio: it begins with its first use.

    Args:
        session: whose database it is.
        changes: what is committed with the handler's own; asked at the end.

    Attributes:
        problem: why it was rolled back while its handler ran; "" where it was not.
    """

    def __init__(self, session: Session, changes: Callable[[], Sequence[Change]]) -> None:
        super().__init__(session.store.db, Draft(session.core.outbox))
        self._session, self._changes, self._thread = session, changes, get_ident()
        self._work: Work | None = None
        self.problem = ""

    @property
    def begun(self) -> bool:
        """Whether it keeps others out."""
        return self._work is not None

    def check_open(self) -> None:
        """See that it is, and begin it.

        Raises:
            CallerError: it is over, or used on another thread than the event loop's.
        """
        if self.problem:
            raise HandlerMisused(self.problem)
        if self._thread != get_ident():
            raise HandlerMisused("a handler's transaction is used on the event loop's thread only")
        super().check_open()
        if self._work is None:
            session = self._session
            session.enter()
            try:
                self._work = Work(session, self._changes, fsync=False, transaction=self)
                self._work.__enter__()
            except BaseException as error:
                self._work = None
                session.leave(error)
                raise

    def commit(self, then: Callable[[], None]) -> None:
        """Commit, and do `then` before anybody else has his turn.

        Raises:
            StorageError, CallerError: nothing of it happened.
        """
        self.check_open()
        work, self._work = self._work, None
        assert work is not None
        try:
            work.__exit__(None, None, None)
            then()
        except BaseException as error:
            self._session.leave(error)
            raise
        self._session.leave()

    def roll_back(self, problem: str = "", error: BaseException | None = None) -> None:
        """End it without a trace, where it has begun.

        Args:
            problem: what whoever goes on using it is told.
            error: why it is ended; what SQLite said of the disk is raised as ours.
        """
        self.open, self.problem = False, self.problem or problem
        work, self._work = self._work, None
        if work is None:
            return
        error = error or _RolledBack()
        try:
            work.__exit__(type(error), error, None)
        except BaseException as failed:
            self._session.leave(failed)
            raise
        self._session.leave()


class _RolledBack(Exception):
    """Ends a transaction."""


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Yielding(Protocol):
    """A transaction that must not be open while its handler waits for something."""

    @property
    def begun(self) -> bool:
        """Whether it keeps others out."""

    def roll_back(self, problem: str = "") -> None:
        """End it without a trace; whoever goes on using it is told the problem."""


class Watched:
    """Awaits something for a handler, and sees to it that its transaction does not stay open meanwhile.

    Args:
        awaitable: what the handler returned.
        transaction: the handler's.
        waits: called before it waits for the first time.
    """

    def __init__(self, awaitable: Awaitable[Any], transaction: Yielding, waits: Callable[[], None]) -> None:
        self._awaitable, self._transaction, self._waits = awaitable, transaction, waits

    def __await__(self) -> Generator[Any, Any, Any]:
        handler = _awaited(self._awaitable)
        waited = False
        resume: Callable[[Any], Any] = handler.send
        value: Any = None
        try:
            while True:
                try:
                    wanted = resume(value)
                except StopIteration as stop:
                    return stop.value
                if self._transaction.begun:
                    problem = (
                        "the handler waited for something with its transaction open, which would have kept everybody "
                        "else out of the client, so it was rolled back: await first, then use the transaction"
                    )
                    self._transaction.roll_back(problem)
                    resume, value = handler.throw, HandlerMisused(problem)
                    continue
                if not waited:
                    waited = True
                    self._waits()
                try:
                    value = yield wanted
                    resume = handler.send
                except BaseException as error:  # noqa: BLE001 - a cancellation too is the handler's to see.
                    resume, value = handler.throw, error
        finally:
            handler.close()


class AsyncProcessing(Processing):
    """The call `process` of a client for asyncio, on what `Gets.available` has found."""

    async def batch(
        self, sub: Subscription, handler: AsyncHandler, most: int, breathe: Callable[[], Awaitable[None]]
    ) -> int:
        """Hand what is here to a handler, up to `most` messages; 0 where all of it had been taken before.

        Args:
            sub: where there is something.
            handler: plain, or one that is awaited.
            most: how many messages.
            breathe: awaited between two of them.
        """
        task, taken = asyncio.current_task(), 0
        assert task is not None
        ours = ref(task)
        try:
            while taken < most:
                with self.session.entered():
                    found = None if sub.busy else self.begin(sub, first=not taken)
                    if isinstance(found, Attempt):
                        sub.busy = ours
                if found is None:
                    break
                if isinstance(found, int):
                    taken += found
                    continue
                taken += await self._attempt(found, handler, more=taken + 1 < most)
                self._let_go(sub)
                await breathe()
        finally:
            if sub.busy is ours:  # An exception struck anywhere since it was taken in hand.
                self._let_go(sub)
            self.send_held()
        return taken

    def _let_go(self, sub: Subscription) -> None:
        """The message is in nobody's hand any more."""
        session = self.session
        with session.lock:
            sub.busy = None
            if not session.is_cut_off:
                with suppress(Interrupted), session.entered():
                    self.send_due()
            session.look()

    async def _attempt(self, attempt: Attempt, handler: AsyncHandler, *, more: bool) -> int:
        sub, session = attempt.sub, self.session
        following = sub.prefetch.following(attempt.taking) if more else None

        def changes() -> Sequence[Change]:
            if sub.emptied != attempt.emptied or not sub.on:
                raise CallerError(f"the subscription to {sub.topic} changed while a message was handled; rolled back")
            return self.changes(attempt, following)

        transaction = HandlerTransaction(session, changes)
        try:
            result = handler(attempt.message, transaction)
            check_result(result, awaits=True)
            if inspect.isawaitable(result):
                await Watched(result, transaction, self.send_held)
            transaction.check_open()
        except DISK_ERRORS as error:
            try:
                transaction.roll_back(error=error)
            finally:
                self._uncount(attempt)
            raise
        except HandlerMisused:
            transaction.roll_back()
            self._uncount(attempt)
            raise
        except Exception as error:
            transaction.roll_back()
            # The transaction was misused, and the handler raised another error because of that.
            if transaction.problem:
                self._uncount(attempt)
                raise HandlerMisused(transaction.problem) from error
            with session.lock:
                if session.is_cut_off or sub.emptied != attempt.emptied:
                    raise
                with session.entered():
                    return self.failed(attempt, error)
        except GeneratorExit:  # The event loop is gone, and this may be anywhere within the garbage collection.
            transaction.roll_back()
            raise
        except BaseException:
            transaction.roll_back()
            self._uncount(attempt)
            raise
        try:
            transaction.commit(lambda: self.handled(attempt, following))
        except (StorageError, HandlerMisused):
            self._uncount(attempt)
            raise
        return 1

    def _uncount(self, attempt: Attempt) -> None:
        with self.session.lock:
            if not self.session.is_cut_off:
                with suppress(Interrupted), self.session.entered():
                    self.uncount(attempt)
