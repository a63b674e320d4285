"""Read a client's state file by its connection of SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import apsw

from pubsub.client.storage.disk_errors import row_errors, storage_errors
from pubsub.client.storage.interface import Value
from pubsub.client.storage.reading import Reading


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
