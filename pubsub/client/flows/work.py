"""Make one commit around a `with` block, for handlers and for `transaction()`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pubsub.client.core.changes import Change
from pubsub.client.core.outbox import Draft
from pubsub.client.guards import guards
from pubsub.client.session import Session
from pubsub.client.storage.transaction import TRANSACTION_RECORDS_MAX, Transaction


def make_ready(session: Session) -> None:
    """Do all that may commit before a transaction of the client. The lock is held.

    Raises:
        StateCopied: a copy of the state was used elsewhere. StorageError: the disk takes no writes.
    """
    core = session.core
    if core.copied is not None:
        raise core.copied
    session.check_disk()
    session.accumulator.close_all()
    core.numbers.ensure(TRANSACTION_RECORDS_MAX)


class Work:
    """One commit around a `with` block: its statements, its puts, and the result of `changes()`, called at its end.

    The lock is held, in a step. An exception of the block passes after the rollback. This class is not a generator: a
    generator interrupted by an exception would resume at its garbage collection, in the middle of other work.

    Args:
        session: the session that commits.
        changes: returns further changes for the commit.
        fsync: the commit must survive a power cut.
        transaction: the block's transaction; None: a new one.

    Raises:
        StorageError: the commit failed; nothing of it happened.
    """

    def __init__(
        self,
        session: Session,
        changes: Callable[[], Sequence[Change]],
        *,
        fsync: bool,
        transaction: Transaction | None = None,
    ) -> None:
        self._session, self._changes, self._fsync = session, changes, fsync
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        session = self._session
        make_ready(session)
        transaction = self._transaction or Transaction(session.store, Draft(session.core.outbox))
        self._transaction = transaction
        try:
            session.store.begin(fsync=self._fsync)
        except BaseException as error:
            session.store.undo(error)
            raise
        session.transaction, session.owner = transaction, threading.get_ident()
        return transaction

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        if error is not None:
            self._undo(error)
            return
        session, transaction = self._session, self._transaction
        assert transaction is not None
        try:
            transaction.check_usable()
            session.store.apply([*transaction.draft.changes(), *self._changes()])
        except BaseException as failed:
            self._undo(failed)
            raise
        try:
            session.store.end()
        except BaseException as failed:
            # A constraint checked at the commit, such as a deferred foreign key, is the caller's error. The commit is
            # rolled back.
            if session.store.rolled_back and session.store.kind_of(failed) is not None:
                session.let_pass(failed)
            raise
        finally:
            self._over(transaction)
        session.accept(transaction.draft, fsync=self._fsync)

    def _undo(self, error: BaseException) -> None:
        """Roll back the block, or its end, after a failure."""
        session, transaction = self._session, self._transaction
        assert transaction is not None
        try:
            session.store.undo(error)
        except BaseException as found:
            if found is error:
                session.let_pass(error)
            raise
        finally:
            self._over(transaction)
        session.let_pass(error)

    def _over(self, transaction: Transaction) -> None:
        transaction.open = False
        self._session.transaction = self._session.owner = None


class Block:
    """The `with` block of `transaction()`: a step with one fsynced commit in it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._work: Work | None = None
        self._token = object()

    def __enter__(self) -> Transaction:
        session = self._session
        session.check_outside()  # A nested block must not end the outer one's transaction.
        try:
            session.enter()
            try:
                session.block = self._token
                self.__class__ = _OpenBlock
                self._work = Work(session, lambda: (), fsync=True)
                return self._work.__enter__()
            except BaseException as error:
                session.block = None  # The block was not entered, so `__del__` has nothing to release.
                self.__class__ = Block
                session.leave(error)
                raise
        except BaseException:
            session.recover(block=session.block is self._token)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        session, work = self._session, self._work
        assert work is not None
        if session.block is not self._token:  # The client was closed within the block, which rolled it back.
            if error is None:
                session.check_open()
                session.check_usable()
            return
        try:
            try:
                session.block = None
                work.__exit__(kind, error, *trace)
                if error is None:
                    session.follow()
            except BaseException as failed:
                session.leave(failed)
                raise
            session.leave(error)
        except BaseException:
            session.recover(block=True)
            raise
        finally:
            self.__class__ = Block


class _OpenBlock(Block):
    """A block that was not left yet. Only this class has a `__del__`, since Python drops a signal's exception there."""

    def __del__(self) -> None:
        # A signal's exception came between the entry and the first instruction of the block, or after the last one.
        if self._session.block is self._token:
            self._session.recover(block=True)


guards(Block.__enter__)
guards(Block.__exit__)
