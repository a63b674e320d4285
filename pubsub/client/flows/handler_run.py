"""Run a handler once, and end its transaction: it commits, or nothing of it happened.

The rule for conflicts and lost connections is docs/explanation/databases.md, DB8.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, Generic, Protocol, TypeVar

from pubsub.client.errors import ClaimLost
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
        transaction = self.transaction_of(attempt)
        try:
            result = self._call(handler, attempt.given, transaction, awaits=awaits)
            check_result(result, awaits=awaits)
            if inspect.isawaitable(result):
                await Watched(result, transaction, self.send_held)
            transaction.check_open()
        except HandlerMisused:
            transaction.roll_back()
            raise
        except ClaimLost:
            transaction.roll_back()
            return self.not_ours(attempt)
        except Exception as error:
            kind = transaction.kind_of(error)
            if kind is ErrorKind.DISK:  # The disk caused it, not the handler.
                transaction.roll_back(error=error)
                raise
            transaction.roll_back()
            if kind is ErrorKind.CONFLICT and again and not transaction.problem:
                return None
            # The transaction was misused, and the handler raised another error because of that.
            if transaction.problem:
                raise HandlerMisused(transaction.problem) from error
            return self.failed_with(attempt, error)
        except BaseException as error:
            # Without an event loop, a GeneratorExit comes from garbage collection, during which nothing may commit.
            attempt.settled = isinstance(error, GeneratorExit)
            transaction.roll_back()
            raise
        try:
            transaction.commit(lambda: self.handled(attempt))
        except NotOurs:
            return self.not_ours(attempt)
        except TooLarge as error:  # Other puts have taken the room since the handler's.
            return self.failed_with(attempt, error)
        except Exception as error:
            kind = transaction.kind_of(error)
            if kind is ErrorKind.CONFLICT and again:
                return None
            if kind not in (ErrorKind.CONSTRAINT, ErrorKind.CONFLICT):
                raise
            return self.failed_with(attempt, error)  # It is checked at the commit, such as a deferred foreign key.
        return attempt.size

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
