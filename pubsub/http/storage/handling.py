"""A handler's transaction: it begins with its first use, so that a long job blocks no others while it computes.

The rule is docs/explanation/reliable-http.md, Q4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import Row
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import HandlerMisused
from pubsub.http.core.outgoing import Outgoing
from pubsub.http.storage.journal import Journal

if TYPE_CHECKING:
    from pubsub.client.storage.interface import Bindings


class HandlerTransaction(Transaction):
    """The transaction of a handler; its changes commit with the request's receipt, or not at all.

    Args:
        journal: of the receiver.

    Attributes:
        problem: reason of a rollback while the handler ran, "" if there was none.
        queued: requests added to the outbox, which are sent after the commit.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._block: AbstractContextManager[Transaction] | None = None
        self._inner: Transaction | None = None
        self._thread = get_ident()
        self.open, self.inherited, self.problem = True, None, ""
        self.queued: list[Outgoing] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("draft", "_database"):  # A client's put in this transaction reads them.
            return getattr(self._begun(), name)
        raise AttributeError(name)

    @property
    def begun(self) -> bool:
        """Whether it blocks other transactions."""
        return self._block is not None

    def _begun(self) -> Transaction:
        if self.problem:
            raise HandlerMisused(self.problem)
        if self._thread != get_ident():
            raise HandlerMisused("a handler's transaction must be used on the thread that called the handler")
        super().check_open()
        if self._inner is None:
            block = self._journal.transaction()
            self._inner, self._block = block.__enter__(), block
        return self._inner

    def check_open(self) -> None:
        """Begin the transaction if it has not begun.

        Raises:
            CallerError: it has ended; HandlerMisused: it is used on another thread.
        """
        self._begun()

    def check_usable(self) -> None:
        """Check that no statement has ended it and that no put was interrupted.

        Raises:
            CallerError: one has.
        """
        self._begun().check_usable()

    def execute(self, statement: str, bindings: Bindings = ()) -> Any:
        """Run one or more SQL statements; see `Transaction.execute`."""
        return self._begun().execute(statement, bindings)

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> Any:
        """Run a statement once for each row of bindings."""
        return self._begun().executemany(statement, rows)

    def put_batches(self, topic: str, batches: Sequence[BatchContents]) -> list[Row]:
        """Add batches of the client that owns this file; see `Transaction.put_batches`."""
        return self._begun().put_batches(topic, batches)

    def commit(self, finish: Callable[[Transaction], None]) -> None:
        """Commit it together with the rows that `finish` writes.

        Raises:
            StorageError, CallerError: nothing was committed.
        """
        try:
            finish(self._begun())
            self.check_usable()
        except BaseException as error:
            self.roll_back(error=error)
            raise
        block, self._block, self.open = self._block, None, False
        assert block is not None
        block.__exit__(None, None, None)

    def roll_back(self, problem: str = "", error: BaseException | None = None) -> None:
        """Roll it back, if it has begun.

        Args:
            problem: error for further uses.
            error: reason; an SQLite error of the disk is raised as a StorageError.
        """
        self.open, self.problem = False, self.problem or problem
        block, self._block = self._block, None
        if block is not None:
            error = error or _RolledBack()
            try:
                block.__exit__(type(error), error, None)
            except _RolledBack:
                return


class _RolledBack(Exception):
    """Ends a transaction."""
