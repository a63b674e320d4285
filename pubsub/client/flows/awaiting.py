"""The transaction of a handler: it begins with its first use.

A client has one connection to its database, so an open transaction keeps all other threads and coroutines out. A
handler may run for long; so its transaction begins with its first use. A handler that awaits must not wait for anything
from then on: await first, then read and write. One that does wait is rolled back, and its `await` raises the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from threading import get_ident
from typing import Any, Protocol

from pubsub.client.core.changes import Change
from pubsub.client.core.outbox import Draft
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import HandlerMisused


class HandlerTransaction(Transaction):
    """A handler's transaction: it begins with its first use.

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
            CallerError: it is over, or used on another thread than the handler's.
        """
        if self.problem:
            raise HandlerMisused(self.problem)
        if self._thread != get_ident():
            raise HandlerMisused("a handler's transaction is used on the thread of the handler only")
        super().check_open()
        if self._work is None:
            session = self._session
            session.handlers.discard(self._thread)  # From here on its thread is the owner of an open transaction.
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
