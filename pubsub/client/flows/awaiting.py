"""Begin the transaction of a handler at its first use.

A client has one connection to its state file, so an open transaction blocks all other threads and coroutines. A handler
may run for long, so its transaction begins only with its first use. After that, a handler that awaits must not wait for
anything: await first, then read and write. A handler that does wait is rolled back, and its `await` raises the reason.

With a state in PostgreSQL, the transaction has a connection of its own. Only its commit needs the session's lock.
Before that the checks are made that the application has deferred to the commit. They may wait for the rows of another
handler, and this one may wait for the session's lock: PostgreSQL would see no deadlock.

The rule is docs/explanation/databases.md, DB10.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Protocol

from pubsub.client.core.changes import Change
from pubsub.client.core.outbox import Draft, LateDraft
from pubsub.client.flows.apart import apart
from pubsub.client.flows.work import Work, make_ready
from pubsub.client.session import Session
from pubsub.client.storage.interface import Bindings, ErrorKind, HandlerDatabase
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused


class HandlerTransaction(Transaction):
    """A handler's transaction, which begins with its first use.

    Args:
        session: the session with the database.
        changes: returns further changes for the commit; called at the end.

    Attributes:
        problem: cause of a rollback while the handler ran; "" if there was none.
    """

    def __init__(self, session: Session, changes: Callable[[], Sequence[Change]]) -> None:
        self._own = session.store.handler_database()
        self._awaited = session.thread is not None and self._own is not None
        self._unawaited = 0
        outbox = session.core.outbox
        if self._own is None:
            super().__init__(session.store, Draft(outbox))
        else:
            super().__init__(self._own, LateDraft(outbox))
        self._at_commit: list[Callable[[], None]] = []
        self._committing = False
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
        if self._committing:
            return
        if self._thread != get_ident() and not self._awaited:
            raise HandlerMisused("a handler's transaction is used on the thread of the handler only")
        super().check_open()
        if self._own is not None:
            if self._awaited:
                return
            if not self._own.begun and self._work is None:
                self._begin(self._own)
        elif self._work is None:
            self._begin_work()

    def _begin(self, own: HandlerDatabase) -> None:
        """Begin the transaction on a connection of its own; the lock is held only for a check."""
        session = self._session
        inside = self._thread in session.handlers
        session.handlers.discard(self._thread)
        try:
            self.prepare()
            with session.entered():
                self.entered()
            own.begin()
        finally:
            if inside:
                session.handlers.add(self._thread)

    def _begin_work(self) -> None:
        """Begin the transaction on the session's connection, and keep the lock."""
        session = self._session
        if self._own is None:
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

    # On an event loop, with a state in PostgreSQL

    @property
    def connection(self) -> Any:
        """The connection of the database's driver. Statements on it are part of the transaction.

        Raises:
            CallerError: the transaction is over, or an `AsyncClient` has not begun it by `begin`.
        """
        if not self._awaited:
            return super().connection
        self.check_open()
        assert self._own is not None
        if not self._own.begun:
            raise CallerError("`connection = await transaction.begin()` comes first, or `await transaction.execute(…)`")
        return self._own.connection.face

    async def begin(self) -> Any:
        """Begin the transaction if it has not begun, and return the connection as `connection`.

        Raises:
            StorageError: the database cannot be reached, or no connection became free within the client's time-out.
        """
        self.check_open()
        if self._own is None or not self._awaited:
            return self.connection
        if not self._own.begun:
            session = self._session
            await apart(session, self._check_entered)
            await self._own.begin_awaited(session.settings.timeout_seconds)
        return self.connection

    def _check_entered(self) -> None:
        with self._session.entered():
            self.entered()

    def execute(self, statement: str, bindings: Bindings = ()) -> Any:
        """Run one or more SQL statements, as `Transaction.execute`; to be awaited on an event loop with PostgreSQL."""
        if not self._awaited:
            return super().execute(statement, bindings)
        self.check_open()
        self._unawaited += 1
        return self._execute(statement, bindings)

    async def _execute(self, statement: str, bindings: Bindings) -> Any:
        connection = await self.begin()
        self._unawaited -= 1
        return await connection.execute(statement, bindings or None)

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> Any:
        """Run a statement once for each row of bindings; to be awaited as `execute`."""
        if not self._awaited:
            return super().executemany(statement, rows)
        self.check_open()
        self._unawaited += 1
        return self._executemany(statement, rows)

    async def _executemany(self, statement: str, rows: Iterable[Bindings]) -> Any:
        connection = await self.begin()
        self._unawaited -= 1
        cursor = connection.cursor()
        await cursor.executemany(statement, rows)
        return cursor

    async def commit_awaited(self, then: Callable[[], None]) -> None:
        """Commit as `commit`, on the session's thread if it has one."""
        own, session = self._own, self._session
        if own is None or not self._awaited:
            self.commit(then)
            return
        self.check_open()
        if self._unawaited:
            await apart(session, self.roll_back)
            raise HandlerMisused("a statement of the transaction was not awaited: `await transaction.execute(…)`")
        if self._at_commit:
            await self.begin()
        if not own.begun:
            await apart(session, partial(self.commit, then))
            return
        try:
            await own.check_awaited()
        except BaseException as error:
            await apart(session, partial(self.roll_back, error=error))
            raise
        async with self.connection.lock:  # A task that the handler has left behind must not use it meanwhile.
            await apart(session, partial(self._commit, own, then))

    def prepare(self) -> None:
        """Do what must be done before the transaction begins. The lock is not held."""

    def entered(self) -> None:
        """Check, under the lock, that the transaction may begin."""

    def at_commit(self, work: Callable[[], None]) -> None:
        """Run statements on the client's own tables: now, or at the commit if the session's lock is not held now."""
        self.check_open()
        if self._own is None:
            work()
        else:
            self._at_commit.append(work)

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of the database, or of a StorageError; None for any other exception."""
        return self._session.store.kind_of(error) if self._own is None else self._own.kind_of(error)

    def commit(self, then: Callable[[], None]) -> None:
        """Commit, and call `then` before any other user of the client gets the lock.

        Raises:
            StorageError, CallerError: nothing of it happened.
        """
        if self._own is not None:
            if self._own.begun or self._at_commit:
                self._commit(self._own, then)
                return
            Transaction.check_open(self)
            self.prepare()
            self._begin_work()  # No statement came: the session's own connection will do.
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

    def _commit(self, own: HandlerDatabase, then: Callable[[], None]) -> None:
        """Commit on a connection of its own; the lock is held for the commit alone."""
        session = self._session
        self.check_open()
        try:
            if not self._awaited:
                own.check()
            session.enter()
        except BaseException as error:
            self.open = False
            own.undo(error)
            raise
        try:
            try:
                self._make_ready()
                own.end(self._all_changes)
            except BaseException as error:
                self._undo_commit(own, error)
                raise
            finally:
                self.open = self._committing = False
            session.accept(self.draft, fsync=False)
            then()
        except BaseException as error:
            session.leave(error)
            raise
        session.leave()

    def _undo_commit(self, own: HandlerDatabase, error: BaseException) -> None:
        """Roll back at the commit. The step ends in good order, unless the outcome is in doubt."""
        in_doubt = own.in_doubt
        try:
            own.undo(error)
        except BaseException as found:
            if found is error:
                self._session.let_pass(error)
            raise
        if not in_doubt:
            self._session.let_pass(error)

    def _make_ready(self) -> None:
        """Do what may commit before this transaction, and check it. The lock is held."""
        make_ready(self._session)
        self.check_usable()

    def _all_changes(self) -> Iterator[Change]:
        self._committing = True
        for work in self._at_commit:
            work()
        yield from self.draft.changes()
        yield from self._changes()

    def roll_back(self, problem: str = "", error: BaseException | None = None) -> None:
        """Undo everything, if it has begun.

        Args:
            problem: error text for any later use.
            error: cause of the rollback; an error of the database about the disk is raised as one of ours.
        """
        self.open, self.problem = False, self.problem or problem
        error = error or _RolledBack()
        if self._own is not None:
            self._own.undo(error)
        work, self._work = self._work, None
        if work is None:
            return
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
