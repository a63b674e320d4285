"""A handler's transaction: it begins with its first use, so that a long job keeps nobody out while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pubsub.client.contents import Contents
from pubsub.client.core.chain import Row
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import HandlerMisused
from pubsub.http.core.outgoing import Outgoing
from pubsub.http.storage.journal import Journal

if TYPE_CHECKING:
    import apsw


class HandlerTransaction(Transaction):
    """The transaction that a handler gets; what it does commits with the receipt of the request, or not at all.

    Args:
        journal: whose.

    Attributes:
        problem: why it was rolled back while its handler ran; "" where it was not.
        queued: requests that it stores in the outbox, on their way once it is committed.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._block: AbstractContextManager[Transaction] | None = None
        self._inner: Transaction | None = None
        self._thread = get_ident()
        self.open, self.inherited, self.problem = True, None, ""
        self.queued: list[Outgoing] = []

    def __getattr__(self, name: str) -> Any:
        if name == "draft":  # A client asks it of the transaction that it is given a put for.
            return self._begun().draft
        raise AttributeError(name)

    @property
    def begun(self) -> bool:
        """Whether it keeps others out."""
        return self._block is not None

    def _begun(self) -> Transaction:
        if self.problem:
            raise HandlerMisused(self.problem)
        if self._thread != get_ident():
            raise HandlerMisused("a handler's transaction is used on the thread that its handler was called on")
        super().check_open()
        if self._inner is None:
            block = self._journal.transaction()
            self._inner, self._block = block.__enter__(), block
        return self._inner

    def check_open(self) -> None:
        """See that it is, and begin it.

        Raises:
            CallerError: it is over; HandlerMisused: it is used on another thread.
        """
        self._begun()

    def check_whole(self) -> None:
        """See that no statement ended it, and no put was cut off.

        Raises:
            CallerError: so it was.
        """
        self._begun().check_whole()

    def execute(self, statement: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> apsw.Cursor:
        """Run one or more SQL statements; see `Transaction.execute`."""
        return self._begun().execute(statement, bindings)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any] | dict[str, Any]]) -> apsw.Cursor:
        """Run a statement once for each row of bindings."""
        return self._begun().executemany(statement, rows)

    def put_batches(self, topic: str, batches: Sequence[Contents]) -> list[Row]:
        """Add batches of a client whose file this is; see `Transaction.put_batches`."""
        return self._begun().put_batches(topic, batches)

    def commit(self, finish: Callable[[Transaction], None]) -> None:
        """Commit it together with what `finish` writes.

        Raises:
            StorageError, CallerError: nothing of it happened.
        """
        try:
            finish(self._begun())
            self.check_whole()
        except BaseException as error:
            self.roll_back(error=error)
            raise
        block, self._block, self.open = self._block, None, False
        assert block is not None
        block.__exit__(None, None, None)

    def roll_back(self, problem: str = "", error: BaseException | None = None) -> None:
        """End it without a trace, where it has begun.

        Args:
            problem: what whoever goes on using it is told.
            error: why it is ended; what SQLite said of the disk is raised as ours.
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
