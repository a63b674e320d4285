"""A transaction of the client's database: the caller's own rows and any number of puts, in one commit or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pubsub.client.contents import Contents
from pubsub.client.core.chain import DISCARDED, DONE, Row
from pubsub.client.core.outbox import Draft
from pubsub.errors import AfterFork, CallerError, HandlerMisused, PubsubError, TooLarge

if TYPE_CHECKING:
    import apsw

TRANSACTION_RECORDS_MAX: Final = 1 << 20
"""Records that one transaction may put: its numbers are set aside before it begins."""


class Ticket:
    """A message that was put and may not be on the server's disk yet.

    Attributes:
        counter: its number, which its subscribers see as `Message.counter`.
    """

    __slots__ = ("_index", "_row")

    def __init__(self, row: Row, index: int = 0) -> None:
        self._row, self._index = row, index

    def __repr__(self) -> str:
        state = "discarded" if self.discarded else "done" if self.done else "on its way"
        return f"<Ticket {self.counter}, {state}>"

    @property
    def counter(self) -> int:
        """Its number, which its subscribers see as `Message.counter`."""
        return self._row.counter + self._index

    @property
    def done(self) -> bool:
        """Whether it is on the server's disk."""
        return self._row.state == DONE

    @property
    def discarded(self) -> bool:
        """Whether it was given up by `discard`."""
        return self._row.state == DISCARDED


class Transaction:
    """An open transaction; made by `Client.transaction` and `Client.process`, and of use only inside them.

    Statements must not end it, and must leave tables alone whose name begins with `pubsub_`.
    """

    def __init__(self, db: apsw.Connection, draft: Draft) -> None:
        self._db, self.draft = db, draft
        self.open = True
        self.inherited: AfterFork | None = None
        self._records = 0
        self._adding = False

    @property
    def path(self) -> str:
        """The file that it is in."""
        return str(self._db.filename)

    def execute(self, statement: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> apsw.Cursor:
        """Run one or more SQL statements.

        Returns:
            The cursor: iterate it for the rows, or `.get` for the one row or value.

        Raises:
            apsw.Error: as SQLite says.
            HandlerMisused: the statement ended the transaction; what it committed stays.
        """
        self.check_open()
        cursor = self._db.execute(statement, bindings)
        self._check_not_ended()
        return cursor

    def executemany(self, statement: str, rows: Iterable[Sequence[Any] | dict[str, Any]]) -> apsw.Cursor:
        """Run a statement once for each row of bindings."""
        self.check_open()
        cursor = self._db.executemany(statement, rows)
        self._check_not_ended()
        return cursor

    def check_open(self) -> None:
        """See that it is.

        Raises:
            CallerError: it is over.
        """
        if not self.open:
            raise self.inherited or CallerError("the transaction is over")

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that began it."""
        self.inherited, self.open = error, False

    def check_whole(self) -> None:
        """See that no statement ended it, and no put was cut off.

        Raises:
            HandlerMisused: a statement did, and what it committed stays.
            CallerError: a signal's exception did, which was caught.
        """
        if self._adding:
            raise CallerError("a put of this transaction was interrupted, so none of it happens")
        self._check_not_ended()

    def _check_not_ended(self) -> None:
        if not self._db.in_transaction:
            raise HandlerMisused(
                "a statement ended the transaction, and what it committed stays; leave that to the with block or the "
                "handler's return"
            )

    def put(self, topic: str, bodies: Sequence[bytes]) -> Row:
        """Add one batch.

        Raises:
            TooLarge: TRANSACTION_RECORDS_MAX is passed, or the batch or the outbox is.
        """
        (row,) = self.put_batches(topic, [Contents(bodies)])
        return row

    def put_batches(self, topic: str, batches: Sequence[Contents]) -> list[Row]:
        """Add batches, all of them or none.

        Raises:
            TooLarge: TRANSACTION_RECORDS_MAX is passed, or a batch or the outbox is.
        """
        self.check_open()
        records = self._records + sum([len(contents.bodies) for contents in batches])
        if records > TRANSACTION_RECORDS_MAX:
            raise TooLarge(
                "number of records in a transaction", records, TRANSACTION_RECORDS_MAX, "TRANSACTION_RECORDS_MAX"
            )
        before = len(self.draft.rows)
        self._adding = True
        try:
            rows = [self.draft.add(topic, *contents) for contents in batches]
        except PubsubError:
            self.draft.cut(before)
            self._adding = False
            raise
        self._records = records
        self._adding = False
        return rows
