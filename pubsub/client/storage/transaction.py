"""Run a transaction of the client's database: the caller's rows and any number of puts, in one commit or none.

The rule is docs/explanation/put.md, P8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import DISCARDED, DONE, Row
from pubsub.client.core.outbox import Draft
from pubsub.errors import AfterFork, CallerError, HandlerMisused, PubsubError, TooLarge

if TYPE_CHECKING:
    from pubsub.client.storage.interface import Bindings, Database, Value

TRANSACTION_RECORDS_MAX: Final = 1 << 20
"""Most records that one transaction may put: their numbers are reserved before it begins."""


class Ticket:
    """The delivery state of one put message.

    Attributes:
        counter: the message's number, which its subscribers see as `Message.counter`. With a state in PostgreSQL, a put
            of a handler's transaction has the number 0 until the commit.
    """

    __slots__ = ("_index", "_row")

    def __init__(self, row: Row, index: int = 0) -> None:
        self._row, self._index = row, index

    def __repr__(self) -> str:
        state = "discarded" if self.discarded else "done" if self.done else "on its way"
        return f"<Ticket {self.counter}, {state}>"

    @property
    def counter(self) -> int:
        """The message's number, which its subscribers see as `Message.counter`; 0: it has none yet."""
        return self._row.counter and self._row.counter + self._index

    @property
    def done(self) -> bool:
        """True once the message is on the server's disk."""
        return self._row.state == DONE

    @property
    def discarded(self) -> bool:
        """True if `discard` gave the message up."""
        return self._row.state == DISCARDED


class Transaction:
    """An open transaction; made by `Client.transaction` and `Client.process`, and valid only inside them.

    Statements must not end the transaction, and must not touch tables named `pubsub_…`.
    """

    def __init__(self, database: Database, draft: Draft) -> None:
        self._database, self.draft = database, draft
        self.open = True
        self.inherited: AfterFork | None = None
        self._records = 0
        self._adding = False

    @property
    def path(self) -> str:
        """The database file."""
        return self._database.path

    @property
    def connection(self) -> Any:
        """The connection of the database's driver, of apsw or of psycopg. Statements on it are part of the transaction.

        Raises:
            CallerError: the transaction is over.
        """
        self.check_open()
        return self._database.connection

    async def begin(self) -> Any:
        """Begin the transaction if it has not begun, and return `connection`.

        Only a handler of an `AsyncClient` with a state in PostgreSQL needs it. Raises as `connection`; StorageError.
        """
        return self.connection

    def execute(self, statement: str, bindings: Bindings = ()) -> Any:
        """Run one or more SQL statements.

        Args:
            statement: the SQL text.
            bindings: values of its parameters, by place or by name.

        Returns:
            The cursor. Iterate it for the rows, or use `.get` for the only row or value.

        Raises:
            apsw.Error: SQLite rejected a statement.
            CallerError: the transaction is over.
            HandlerMisused: a statement ended the transaction; its commit stays.
        """
        self.check_open()
        cursor = self._database.execute(statement, bindings)
        self._check_not_ended()
        return cursor

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> Any:
        """Run a statement once for each row of bindings. Result and errors as `execute`.

        Args:
            statement: the SQL text.
            rows: one set of bindings for each run.
        """
        self.check_open()
        cursor = self._database.executemany(statement, rows)
        self._check_not_ended()
        return cursor

    def run(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement on the client's own tables, of the common subset of SQL (`interface`); return its rows."""
        self.check_open()
        return list(self._database.query(statement, parameters))

    def at_commit(self, work: Callable[[], None]) -> None:
        """Run statements on the client's own tables; a handler's transaction may do it at its commit."""
        self.check_open()
        work()

    def prepare_files(self) -> None:
        """Prepare the table of the files that the command `get` writes."""
        self.check_open()
        self._database.prepare_files()

    def check_open(self) -> None:
        """Raise a CallerError if the transaction is over."""
        if not self.open:
            raise self.inherited or CallerError("the transaction is over")

    def forked(self, error: AfterFork) -> None:
        """Close the transaction in a child process."""
        self.inherited, self.open = error, False

    def check_usable(self) -> None:
        """Check that no statement ended the transaction, and no put was interrupted.

        Raises:
            HandlerMisused: a statement ended the transaction; its commit stays.
            CallerError: an exception of a signal handler interrupted a put, and the caller caught it.
        """
        if self._adding:
            raise CallerError("a put of this transaction was interrupted, so none of it happens")
        self._check_not_ended()

    def _check_not_ended(self) -> None:
        if not self._database.in_transaction:
            raise HandlerMisused(
                "a statement ended the transaction, and its commit stays; let the with block or the handler's return "
                "end the transaction"
            )

    def put(self, topic: str, bodies: Sequence[bytes]) -> Row:
        """Add one batch without keys and headers. Raises as `put_batches`."""
        (row,) = self.put_batches(topic, [BatchContents(bodies)])
        return row

    def put_batches(self, topic: str, batches: Sequence[BatchContents]) -> list[Row]:
        """Add batches, all of them or none.

        Args:
            topic: topic of all batches.
            batches: their contents.

        Returns:
            Their outbox rows.

        Raises:
            TooLarge: the transaction exceeds TRANSACTION_RECORDS_MAX records, or a batch or the outbox exceeds its
                limit.
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
