"""A streaming query into a Delta table that dies, or whose task fails, at a named step.

    python -m tests.spark.delta_query JSON      runs it in a Spark of its own, which the step kills

Steps: `write` (in a task, before its files are complete), `commit` (all files are complete), `committed` (before Spark
knows). What happens there is as in `tests.spark.query`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pubsub.spark import sink
from pubsub.spark.archive import BY
from pubsub.spark.delta.writer import DeltaDataSource, DeltaWriter
from pubsub.spark.pipelines import Place, begin, source
from tests.spark.query import Step


class StepWriter(DeltaWriter):
    step: Step

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(sink.BATCH_PROPERTY) or 0)

        def rows() -> Iterator[pa.RecordBatch]:
            for each in iterator:
                yield each
                self.step.reach("write", batch)

        return super().write(rows())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.step.reach("commit", batchId)
        super().commit(messages, batchId)
        self.step.reach("committed", batchId)


class StepDataSource(DeltaDataSource):
    """The format `stepping_delta`: option `step` says where something happens."""

    @classmethod
    def name(cls) -> str:
        return "stepping_delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StepWriter:  # noqa: N802
        made = super().streamWriter(schema, overwrite)
        writer = StepWriter(made.directory, made.schema, made.partition_by)
        writer.step = Step(json.loads(dict(self.options)["step"]))
        return writer


def start(spark: SparkSession, facts: dict[str, Any]) -> StreamingQuery:
    """Starts the query; it ends when it has written all present messages."""
    from pyspark.sql import functions as F  # noqa: N812

    from pubsub.spark.datasource import PubsubDataSource

    spark.dataSource.register(PubsubDataSource)
    spark.dataSource.register(StepDataSource)
    rows = source(spark, Place(proxies=(facts["proxies"],)), ["a", "b"], "lake", 2000)
    dated = rows.withColumn("date", F.date_format("stamp", "yyyy-MM-dd"))
    options = {"path": facts["to"], "partitionBy": ",".join(BY), "step": json.dumps(facts)}
    writer = dated.writeStream.format("stepping_delta").options(**options)
    return begin(writer, "lake", facts["checkpoint"], once=True, seconds=0)


def main() -> None:
    from pubsub.spark.session import start as start_session
    from tests.spark.classes import FEW_ROWS

    facts = json.loads(sys.argv[1])
    spark = start_session("local[2,4]", FEW_ROWS)
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    (Path(facts["directory"]) / "pids").write_text(json.dumps([jvm, os.getpid()]))
    start(spark, facts).awaitTermination()


if __name__ == "__main__":
    main()
