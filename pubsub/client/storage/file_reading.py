"""Read a client's state file by its connection of SQLite, and run the application's statements on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import apsw

from pubsub.client.storage.disk_errors import row_errors, storage_errors
from pubsub.client.storage.file_table import TABLE as FILES
from pubsub.client.storage.interface import Bindings, ErrorKind, Value
from pubsub.client.storage.reading import Reading
from pubsub.errors import StorageError


class FileReading(Reading):
    """The content of an open state file.

    Attributes:
        path: the file.
        db: the connection to it.
    """

    db: apsw.Connection

    def query(self, statement: str, parameters: Sequence[Value] = ()) -> apsw.Cursor:
        """Run a statement, and return its rows, which are read while they are taken."""
        return self.db.execute(statement, parameters)

    def value(self, statement: str, parameters: Sequence[Value] = ()) -> Any:
        """Return the first value of the only row; None if there is no row."""
        return self.db.execute(statement, parameters).get

    def files(self) -> list[tuple[str | bytes, str | bytes, int]]:
        """Return the unfinished files; the first of them makes the table."""
        made = self.value("select 1 from sqlite_master where name = 'pubsub_files'")
        return super().files() if made else []

    @contextmanager
    def errors(self, *, loading: bool = False) -> Iterator[None]:
        """Turn errors of SQLite into ours; `loading`: also those of a row of the wrong form."""
        with storage_errors(self.path), row_errors(self.path) if loading else nullcontext():
            yield

    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts, boot, clean."""
        return self.db.execute("select value from pubsub_state where key = ?", (key,)).get

    # Other clients

    database = ""

    def settle_other(self, client: str, store: str, topic: str, group: str, number: int) -> None:
        """Return None: a file has the state of one client."""

    # The application's statements

    @property
    def connection(self) -> apsw.Connection:
        """The connection to the file."""
        return self.db

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        return self.db.in_transaction

    def execute(self, statement: str, bindings: Bindings = ()) -> apsw.Cursor:
        """Run one or more statements of the application."""
        return self.db.execute(statement, bindings)

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> apsw.Cursor:
        """Run a statement of the application once for each row of bindings."""
        return self.db.executemany(statement, rows)

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of SQLite, or of a StorageError; None for any other exception."""
        if isinstance(error, StorageError | apsw.FullError | apsw.IOError | apsw.CorruptError):
            return ErrorKind.DISK
        if isinstance(error, apsw.ConstraintError):
            return ErrorKind.CONSTRAINT
        return ErrorKind.STATEMENT if isinstance(error, apsw.Error) else None

    def prepare_files(self) -> None:
        """Make the table of the files that the command `get` writes, if it is missing."""
        self.db.execute(FILES)
