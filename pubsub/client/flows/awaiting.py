"""Begin the transaction of a handler at its first use.

A client has one connection to its database, so an open transaction blocks all other threads and coroutines. A handler
may run for long, so its transaction begins only with its first use. After that, a handler that awaits must not wait for
anything: await first, then read and write. A handler that does wait is rolled back, and its `await` raises the reason.
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
    """A handler's transaction, which begins with its first use.

    Args:
        session: the session with the database.
        changes: returns further changes for the commit; called at the end.

    Attributes:
        problem: cause of a rollback while the handler ran; "" if there was none.
    """

    def __init__(self, session: Session, changes: Callable[[], Sequence[Change]]) -> None:
        super().__init__(session.store, Draft(session.core.outbox))
        self._session, self._changes, self._thread = session, changes, get_ident()
        self._work: Work | None = None
        self.problem = ""

    @property
    def begun(self) -> bool:
        """True if the transaction is open and blocks other users of the client."""
        return self._work is not None

    def check_open(self) -> None:
        """Begin the transaction if it has not begun.

        Raises:
            CallerError: it is over.
            HandlerMisused: it was rolled back, or this is not the handler's thread.
        """
        if self.problem:
            raise HandlerMisused(self.problem)
        if self._thread != get_ident():
            raise HandlerMisused("a handler's transaction is used on the thread of the handler only")
        super().check_open()
        if self._work is None:
            session = self._session
            self.prepare()
            session.handlers.discard(self._thread)  # From here on the thread owns an open transaction.
            session.enter()
            try:
                self.entered()
                self._work = Work(session, self._changes, fsync=False, transaction=self)
                self._work.__enter__()
            except BaseException as error:
                self._work = None
                session.leave(error)
                raise

    def prepare(self) -> None:
        """Do what must be done before the transaction begins. The lock is not held."""

    def entered(self) -> None:
        """Check, under the lock, that the transaction may begin."""

    def commit(self, then: Callable[[], None]) -> None:
        """Commit, and call `then` before any other user of the client gets the lock.

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
        """Undo everything, if it has begun.

        Args:
            problem: error text for any later use.
            error: cause of the rollback; an error of the database about the disk is raised as one of ours.
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
    """A transaction that must not be open while its handler waits."""

    @property
    def begun(self) -> bool:
        """True if the transaction is open and blocks other users of the client."""

    def roll_back(self, problem: str = "") -> None:
        """Undo everything; a later use raises the problem."""


class Watched:
    """Await a handler's result, and roll its transaction back if the handler waits while it is open.

    Args:
        awaitable: the handler's result.
        transaction: the handler's transaction.
        waits: called before the first wait.
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
                        "the handler waited with its transaction open, which would block all other users of the "
                        "client, so it was rolled back: await first, then use the transaction"
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
                except BaseException as error:  # noqa: BLE001 - the handler must get a cancellation too.
                    resume, value = handler.throw, error
        finally:
            handler.close()
