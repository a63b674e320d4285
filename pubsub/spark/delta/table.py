"""The commits of a query's batches to a Delta table, each once.

A commit has Delta's action `txn`: the application is the query, from the checkpoint, and the version is the number of
the batch. The table keeps the last version of each application, so it knows by itself which batches it has. A batch
that is repeated after a kill finds its number there and adds nothing. delta-rs refuses a commit if another one of the
same application came since the table was read. It does not compare the numbers, so this module does
(https://github.com/delta-io/delta-rs/issues/2580).

The rule is docs/explanation/spark-exchange.md, K18.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pubsub.errors import ConfigurationError, PubsubError, StateCopied, StorageError, StoreInUse
from pubsub.spark.delta.files import DataFile, add_fields

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

LOG: Final = "_delta_log"
"""Folder in a table's directory that has its log."""

FORBIDDEN: Final = frozenset(" ,;{}()\n\t=")
"""Characters that the name of a Delta column cannot have."""


class SecondWriter(PubsubError):
    """Another process commits the batches of the same query to the table."""

    exit_code = StoreInUse.exit_code

    def __init__(self, table: str, batch: int) -> None:
        self.table, self.batch = table, batch
        super().__init__(table, batch)

    def __str__(self) -> str:
        return (
            f"{self.table}: another process committed batch {self.batch} at the same time; let one process run with"
            " this checkpoint, and start it again"
        )


class BatchOld(PubsubError):
    """The table has later batches of the query: its checkpoint is an older copy."""

    exit_code = StateCopied.exit_code

    def __init__(self, table: str, batch: int, last: int) -> None:
        self.table, self.batch, self.last = table, batch, last
        super().__init__(table, batch, last)

    def __str__(self) -> str:
        return (
            f"{self.table}: batch {self.batch} was committed before, and batch {self.last} after it: this checkpoint is"
            " an older copy, or is used twice, and rows would be left out; use the newer one, or another directory"
        )


class BatchesMissing(PubsubError):
    """The table lacks batches that the checkpoint has behind it: the table is an older copy, or was replaced."""

    exit_code = StateCopied.exit_code

    def __init__(self, table: str, batch: int, last: int | None) -> None:
        self.table, self.batch, self.last = table, batch, last
        super().__init__(table, batch, last)

    def __str__(self) -> str:
        has = "no batch of this query" if self.last is None else f"its batches up to {self.last} only"
        return (
            f"{self.table}: the next batch is {self.batch}, and the table has {has}: it is an older copy, or another"
            " table; restore it, or archive to another directory"
        )


class TableDiffers(ConfigurationError):
    """The rows do not fit the table's columns."""


def check_installed() -> None:
    """Check that deltalake is installed.

    Raises:
        ConfigurationError: it is not.
    """
    if find_spec("deltalake") is None:
        raise ConfigurationError("a Delta table needs deltalake, which is not installed: pip install '.[delta]'")


def is_table(directory: str) -> bool:
    """Return whether a directory of this machine has the log of a Delta table."""
    return any(path.stem.isdigit() for path in Path(directory, LOG).glob("*.json"))


def files(directory: str) -> list[str]:
    """Return the full paths of a table's files."""
    from deltalake import DeltaTable  # noqa: PLC0415

    return DeltaTable(directory).file_uris()


class Table:
    """A Delta table as the target of one query.

    Args:
        directory: a directory that all machines of Spark reach.
        query: application of the commits.
        schema: columns of the rows; columns that the table lacks are added to it.
        partition_by: columns by which a new table is partitioned.
    """

    def __init__(self, directory: str, query: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._directory, self._query = directory, query
        self._schema, self._by = schema, list(partition_by)

    def commit(self, batch: int, files: Sequence[DataFile]) -> bool:
        """Add a batch's files to the table in one step.

        Returns:
            False if the table has the batch; the files then belong to a repeat, and no reader sees them.

        Raises:
            BatchOld, BatchesMissing, SecondWriter, TableDiffers: the batch cannot be added.
            StorageError: the table cannot be read or written.
        """
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - workers, which only write files, do without.

        try:
            table = self._opened()
            if not self._awaits(table, batch):
                return False
            if self._add_columns(table):
                table = self._opened()  # The commit must know of all that it is compared with.
                if not self._awaits(table, batch):
                    raise SecondWriter(self._directory, batch)
            self._add_files(table, batch, files)
        except (DeltaError, OSError) as error:
            if self._has(batch):
                raise SecondWriter(self._directory, batch) from None
            raise StorageError(self._directory, f"batch {batch} could not be committed: {said(error)}") from None
        return True

    def _has(self, batch: int) -> bool:
        """Return whether another process has committed the batch, after an error; False if the table cannot be read."""
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        try:
            last = DeltaTable(self._directory).transaction_version(self._query)
        except DeltaError:
            return False
        return last is not None and last >= batch

    def _opened(self) -> DeltaTable:
        """Open the table; a new one is made without rows."""
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        if not is_table(self._directory):
            columns = delta_schema(self._directory, self._schema)
            try:
                DeltaTable.create(self._directory, columns, mode="ignore", partition_by=self._by)
            except DeltaError:
                if not is_table(self._directory):  # Otherwise another process has made it meanwhile.
                    raise
        table = DeltaTable(self._directory)
        if table.metadata().partition_columns != self._by:
            has = ", ".join(table.metadata().partition_columns) or "nothing"
            raise TableDiffers(
                f"{self._directory}: the table is partitioned by {has}, and not by {', '.join(self._by) or 'nothing'};"
                " give another directory"
            )
        return table

    def _awaits(self, table: DeltaTable, batch: int) -> bool:
        last = table.transaction_version(self._query)
        if last == batch:
            return False
        if last is not None and last > batch:
            raise BatchOld(self._directory, batch, last)
        if batch > (0 if last is None else last + 1):
            raise BatchesMissing(self._directory, batch, last)
        return True

    def _add_columns(self, table: DeltaTable) -> bool:
        """Add the columns that the table lacks; return whether there were any."""
        held = {one.name: one for one in table.schema().fields}
        fields = delta_schema(self._directory, self._schema).fields
        for one in fields:
            if one.name in held and held[one.name].type != one.type:
                raise TableDiffers(
                    f"{self._directory}: column {one.name} is {type_name(held[one.name].type)} in the table and"
                    f" {type_name(one.type)} in the rows; cast it, or give another directory"
                )
        required = [name for name, one in held.items() if not one.nullable and name not in self._schema.names]
        if required:
            raise TableDiffers(f"{self._directory}: the rows lack column {required[0]}, which the table requires")
        new = [one for one in fields if one.name not in held]
        if new:
            table.alter.add_columns(new)
        return bool(new)

    def _add_files(self, table: DeltaTable, batch: int, files: Sequence[DataFile]) -> None:
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction  # noqa: PLC0415

        properties = CommitProperties(app_transactions=[Transaction(self._query, batch)])
        actions: list[AddAction | RemoveAction] = [AddAction(**add_fields(one)) for one in files]
        table.create_write_transaction(actions, "append", table.schema(), self._by, commit_properties=properties)


def delta_schema(table: str, schema: pa.Schema) -> Schema:
    """Return columns as Delta has them.

    Raises:
        TableDiffers: Delta has no such type.
    """
    from deltalake import Schema  # noqa: PLC0415

    for column in schema:
        try:
            known = not pa.types.is_null(column.type) and Schema.from_arrow(pa.schema([column]))
        except Exception:  # noqa: BLE001 - delta-rs raises this class itself.
            known = False
        if not known:
            raise TableDiffers(f"{table}: column {column.name} is {column.type}, and Delta has no such type; cast it")
    return Schema.from_arrow(schema)


def type_name(kind: object) -> str:
    """Return a type of Delta in one word where it has one."""
    return str(getattr(kind, "type", kind))


def said(error: Exception) -> str:
    """Return an error of delta-rs as one line, without the stack that it may have."""
    return str(error).strip().partition("\n")[0]
