"""Spark's writer for Delta tables: format `pubsub_delta`, options `path` and `partitionBy`.

Each task writes files, and the driver commits those of the whole batch. The properties of a task with the query and the
batch are those that the sink of topics uses, too (docs/explanation/spark-exchange.md, *Identity*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pubsub.errors import ConfigurationError
from pubsub.spark.delta.files import DataFile, FileWriter
from pubsub.spark.delta.table import FORBIDDEN, Table
from pubsub.spark.sink import BATCH_PROPERTY, QUERY_PROPERTY, publisher_of

FORMAT: Final = "pubsub_delta"


@dataclass
class Added(WriterCommitMessage):
    """The result of a task: its files."""

    query: str
    files: list[DataFile]


class DeltaWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query to a table.

    Args:
        directory: of the table.
        schema: of the rows.
        partition_by: names of the partition columns.
    """

    def __init__(self, directory: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self.directory, self.schema, self.partition_by = directory, schema, tuple(partition_by)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Added:
        """Write a task's rows to files, on an executor.

        Raises:
            RuntimeError: Spark does not provide the query and the batch.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context else None
        batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
        if context is None or not query or batch is None:
            raise RuntimeError(f"this Spark sets no task property {QUERY_PROPERTY} or {BATCH_PROPERTY}")
        files = FileWriter(
            self.directory, self.schema, self.partition_by, publisher_of(query), int(batch), context.partitionId()
        )
        try:
            for rows in iterator:
                files.write(rows)
            return Added(query, files.finish())
        except BaseException:
            files.abandon()
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the batch to the table, on the driver.

        Raises:
            PubsubError: see `Table.commit`.
        """
        added = [message for message in messages if isinstance(message, Added)]
        if added:  # A batch has a task, even without rows.
            table = Table(self.directory, added[0].query, self.schema, self.partition_by)
            table.commit(batchId, [one for message in added for one in message.files])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Keep the files: a commit that failed may have been stored. `tidy` removes those that no commit lists."""


class DeltaDataSource(DataSource):
    """Delta tables as a sink of Spark's streams."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaWriter:  # noqa: N802 - Spark's name
        """Return the writer for `df.writeStream`.

        Raises:
            ConfigurationError: a column cannot be in a Delta table.
        """
        given = {name.lower(): value for name, value in dict(self.options).items()}
        by = [name for name in given.get("partitionby", "").split(",") if name]
        for name in schema.fieldNames():
            if FORBIDDEN & set(name):
                raise ConfigurationError(f"column {name} cannot be in a Delta table; rename it, such as by AS")
        columns = [column.with_nullable(True) for column in to_arrow_schema(schema, timezone="UTC")]
        return DeltaWriter(given["path"], pa.schema(columns), by)
