"""Run a handler once, and end its transaction: it commits, or nothing of it happened.

The rule for conflicts and lost connections is docs/explanation/databases.md, DB8.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, Protocol, TypeVar

from pubsub.client.errors import ClaimLost
from pubsub.client.flows.apart import apart
from pubsub.client.flows.awaiting import HandlerTransaction, Watched
from pubsub.client.flows.handlers import AsyncHandler, check_result
from pubsub.client.session import Session
from pubsub.client.storage.interface import ErrorKind
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused, StorageError, TooLarge

HELD_SECONDS: Final = 0.01
"""Longest time for which the puts of a handler wait for an fsync that also covers those of the next messages."""

CONFLICTS_MAX: Final = 10
"""Runs of a handler that conflicts of its transaction may end, before the next one counts as a failed attempt."""

_log: Final = logging.getLogger("pubsub.client")


class Handled(Protocol):
    """A message with a running handler.

    Attributes:
        settled: True if its attempt needs no more work.
    """

    settled: bool

    @property
    def given(self) -> Any:
        """What the handler gets: a message, or several at once."""

    @property
    def size(self) -> int:
        """Number of messages that it gets."""


A = TypeVar("A", bound=Handled)


class NotOurs(Exception):
    """At the commit the message no longer belongs to this client: it was sought away, or given to another member."""


class HandlerRun(ABC, Generic[A]):
    """Runs handlers on one session."""

    session: Session

    @abstractmethod
    def transaction_of(self, attempt: A) -> HandlerTransaction:
        """Make the transaction of a handler."""

    @abstractmethod
    def handled(self, attempt: A) -> None:
        """Accept the commit of a handler's transaction. The lock is held."""

    @abstractmethod
    def failed_with(self, attempt: A, error: Exception) -> int:
        """Handle the handler's error, after the rollback; return the number of messages taken, or raise the error."""

    @abstractmethod
    def not_ours(self, attempt: A) -> int:
        """Forget a message that no longer belongs to this client, after the rollback; return 0."""

    async def run(self, attempt: A, handler: AsyncHandler, *, awaits: bool) -> int:
        """Run the handler and commit; return the number of messages taken.

        After a deadlock or a failed serialization it runs again at once, for the same attempt: no handler is at fault.
        """
        for _ in range(CONFLICTS_MAX):
            taken = await self._run(attempt, handler, awaits=awaits, again=True)
            if taken is not None:
                return taken
        return await self._run(attempt, handler, awaits=awaits, again=False) or 0

    async def _run(self, attempt: A, handler: AsyncHandler, *, awaits: bool, again: bool) -> int | None:
        """Run the handler and commit; None after a conflict, if it may run `again`."""
        transaction, session = self.transaction_of(attempt), self.session
        try:
            result = self._call(handler, attempt.given, transaction, awaits=awaits)
            check_result(result, awaits=awaits)
            if inspect.isawaitable(result):
                await Watched(result, transaction, self.send_held)
            transaction.check_open()
        except Exception as error:  # noqa: BLE001 - it is raised again there, or counted.
            return await self._after(attempt, transaction, error, again=again)
        except BaseException as error:
            # Without an event loop, a GeneratorExit comes from garbage collection, during which nothing may commit.
            attempt.settled = isinstance(error, GeneratorExit)
            if attempt.settled:
                transaction.roll_back()
            else:
                await apart(session, transaction.roll_back)
            raise
        try:
            await transaction.commit_awaited(lambda: self.handled(attempt))
        except NotOurs:
            return await apart(session, partial(self.not_ours, attempt))
        except TooLarge as error:  # Other puts have taken the room since the handler's.
            return await apart(session, partial(self.failed_with, attempt, error))
        except Exception as error:
            kind = transaction.kind_of(error)
            if kind is ErrorKind.CONFLICT and again:
                return None
            if kind is ErrorKind.DISK:
                await apart(session, self._check_life)
            if kind not in (ErrorKind.CONSTRAINT, ErrorKind.CONFLICT):
                raise
            return await apart(session, partial(self.failed_with, attempt, error))  # As by a deferred foreign key.
        return attempt.size

    async def _after(self, attempt: A, transaction: HandlerTransaction, error: Exception, *, again: bool) -> int | None:
        """Roll back after an exception of the handler; return or raise as `_run`."""
        session, kind = self.session, transaction.kind_of(error)
        if kind is ErrorKind.DISK:  # The disk caused it, not the handler.
            try:
                await apart(session, partial(transaction.roll_back, error=error))
            finally:
                await apart(session, self._check_life)
            raise error
        await apart(session, transaction.roll_back)
        if isinstance(error, HandlerMisused):
            raise error
        if isinstance(error, ClaimLost):
            return await apart(session, partial(self.not_ours, attempt))
        if kind is ErrorKind.CONFLICT and again and not transaction.problem:
            return None
        # The transaction was misused, and the handler raised another error because of that.
        if transaction.problem:
            raise HandlerMisused(transaction.problem) from error
        return await apart(session, partial(self.failed_with, attempt, error))

    def _check_life(self) -> None:
        """Raise LifeEnded if the connection of a handler was lost because another member has ended this life."""
        session = self.session
        if not session.store.database or session.over:
            return
        for _ in range(2):  # The first commit may only find that the session's connection is lost, too.
            with suppress(CallerError), session.entered():
                try:
                    session.sync()
                    return
                except StorageError as error:
                    if session.store.life_ended:
                        raise
                    _log.debug("client %s: %s", session.name, error)

    def _call(self, handler: AsyncHandler, given: Any, transaction: Transaction, *, awaits: bool) -> object:
        """Call a handler. While a plain handler runs, its thread may put only by its transaction."""
        if awaits:
            return handler(given, transaction)
        handlers = self.session.handlers
        try:
            handlers.add(get_ident())
            return handler(given, transaction)
        finally:
            handlers.discard(get_ident())

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
